"""Wi-Fi: the bytes per second that an application gets over a radio link. 802.11n with one spatial stream.

    radio        transmit power, antenna gain, noise figure -> signal-to-noise ratio
    modes        the rates MCS 0..7
    error_rate   probability that a frame arrives without error, by mode and ratio
    airtime      duration of frames and of the gaps between them
    contention   cost of collisions between several senders
    goodput      bytes per second of one TCP transfer, and the total of n transfers

Pure functions over whole arrays of links.
"""
