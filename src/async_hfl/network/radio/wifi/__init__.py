"""From a radio link to the bytes a second that an application gets over it: 802.11n, one spatial stream.

    radio        transmit power, antenna gain, noise figure -> signal-to-noise ratio
    modes        the rates MCS 0..7
    error_rate   chance that a frame arrives whole, by mode and ratio
    airtime      how long frames and the waiting around them take
    contention   what collisions cost when several want the air at once
    goodput      all of it together: bytes per second of one TCP transfer, and what n of them leave each other

Pure functions over whole arrays of links.
"""
