"""How much of a radio signal is lost on its way, in decibels.

`hybrid_buildings` puts the published models together in the way ns-3's HybridBuildingsPropagationLossModel does:

    nearer than 200 m            ITU-R P.1411 in line of sight                      (itu_1411)
    up to 1 km, or both low      ITU-R P.1411 over the rooftops                     (itu_1411)
    further                      Okumura-Hata with COST 231, above 2.3 GHz Kun      (okumura_hata, kun_2600)
    both in one building         ITU-R P.1238 and inner walls                       (itu_1238, walls)
    one or both indoors          as outdoors, with outer walls and a gain by floor  (walls)

Everything is pure and takes whole arrays of pairs.
"""
