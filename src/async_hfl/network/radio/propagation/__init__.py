"""Path loss of radio signals, in decibels.

`hybrid_buildings` combines the published models in the same way as ns-3's HybridBuildingsPropagationLossModel:

    nearer than 200 m            ITU-R P.1411 in line of sight                      (itu_1411)
    up to 1 km, or both low      ITU-R P.1411 over the rooftops                     (itu_1411)
    further                      Okumura-Hata with COST 231, above 2.3 GHz Kun      (okumura_hata)
    both in one building         ITU-R P.1238 and inner walls                       (indoors)
    one or both indoors          as outdoors, with outer walls and a gain by floor  (indoors)

All functions are pure and take whole arrays of pairs.
"""
