"""A program that computes path losses, frame success rates and Wi-Fi transfers with ns-3.

It needs a Python with the `ns3` package. It reads one JSON object from stdin, {"path_loss": [case, ...],
"success": [...], "wifi": [...]}, and writes one to stdout with lists of results in the same order. ns-3 is GPL and
takes half a minute to load, so it is kept in a separate process and no module of async_hfl imports this file.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

try:
    from ns import ns
except ImportError:
    sys.exit(3)

ENVIRONMENT = {"urban": "Urban", "suburban": "SubUrban", "open-areas": "OpenAreas"}
CITY = {"small": "Small", "medium": "Medium", "large": "Large"}
USE = {"residential": "Residential", "office": "Office", "commercial": "Commercial"}
WALL = {
    "wood": "Wood",
    "concrete-with-windows": "ConcreteWithWindows",
    "concrete-without-windows": "ConcreteWithoutWindows",
    "stone-blocks": "StoneBlocks",
}
STREET = {
    "street_orientation_deg": ("StreetsOrientation", 45.0),
    "street_width_m": ("StreetsWidth", 20.0),
    "building_extent_m": ("BuildingsExtend", 80.0),
    "building_separation_m": ("BuildingSeparation", 50.0),
}
PORT = 9
POLL_S = 0.001


def hybrid_buildings(case: dict[str, Any]) -> Any:
    """The propagation loss model of a case, without shadowing. Parameters that are not given keep ns-3's defaults."""
    for key, (attribute, default) in STREET.items():
        name = f"ns3::ItuR1411NlosOverRooftopPropagationLossModel::{attribute}"
        ns.Config.SetDefault(name, ns.DoubleValue(case.get(key, default)))
    model = ns.CreateObject[ns.HybridBuildingsPropagationLossModel]()
    for sigma in ("ShadowSigmaOutdoor", "ShadowSigmaIndoor", "ShadowSigmaExtWalls"):
        model.SetAttribute(sigma, ns.DoubleValue(0.0))
    model.SetFrequency(case["frequency_mhz"] * 1e6)
    if "environment" in case:
        model.SetAttribute("Environment", ns.StringValue(ENVIRONMENT[case["environment"]]))
    if "city_size" in case:
        model.SetAttribute("CitySize", ns.StringValue(CITY[case["city_size"]]))
    if "rooftop_m" in case:
        model.SetRooftopHeight(case["rooftop_m"])
    if "line_of_sight_limit_m" in case:
        model.SetAttribute("Los2NlosThr", ns.DoubleValue(case["line_of_sight_limit_m"]))
    if "inner_wall_db" in case:
        model.SetAttribute("InternalWallLoss", ns.DoubleValue(case["inner_wall_db"]))
    return model


def path_loss(case: dict[str, Any]) -> dict[str, Any]:
    """{settings, "pairs": [[x, y, z, x, y, z], ...], "buildings": [...]} -> losses in dB, and the room of each end."""
    model = hybrid_buildings(case)
    numbers: dict[int, int] = {}
    kept = []  # ns-3 drops a building when its last Python reference goes
    for number, box in enumerate(case.get("buildings", [])):
        building = ns.CreateObject[ns.Building]()
        building.SetBoundaries(ns.Box(*box["bounds"]))
        building.SetBuildingType(getattr(ns.Building, USE[box["use"]]))
        building.SetExtWallsType(getattr(ns.Building, WALL[box["outer_wall"]]))
        building.SetNFloors(box["floors"])
        building.SetNRoomsX(box["rooms_x"])
        building.SetNRoomsY(box["rooms_y"])
        numbers[building.GetId()] = number
        kept.append(building)
    losses, rooms = [], []
    for pair in case["pairs"]:
        ends = []
        for at in (pair[:3], pair[3:]):
            place = ns.CreateObject[ns.ConstantPositionMobilityModel]()
            inside = ns.CreateObject[ns.MobilityBuildingInfo]()
            place.AggregateObject(inside)
            place.SetPosition(ns.Vector(*map(float, at)))
            inside.MakeConsistent(place)
            ends.append((place, inside))
        losses.append(model.GetLoss(ends[0][0], ends[1][0]))
        rooms.append(
            [
                [
                    numbers[inside.GetBuilding().GetId()],
                    inside.GetFloorNumber(),
                    inside.GetRoomNumberX(),
                    inside.GetRoomNumberY(),
                ]
                if inside.IsIndoor()
                else None
                for _, inside in ends
            ]
        )
    return {"path_loss_db": losses, "rooms": rooms}


def wifi(case: dict[str, Any]) -> dict[str, Any]:
    """Simulate stations that send `size_bytes` each to a gateway at the origin, or receive as much from it.

    Transfers start `stagger_s` apart. The answer is the seconds from each transfer's start until its last byte has
    arrived; null if it never does.
    """
    ns.RngSeedManager.SetSeed(1)
    ns.RngSeedManager.SetRun(case["run"])
    ns.Config.SetDefault("ns3::TcpSocket::SegmentSize", ns.UintegerValue(1024))
    stations = len(case["stations"])
    nodes = ns.NodeContainer()
    nodes.Create(stations + 1)
    places = ns.CreateObject[ns.ListPositionAllocator]()
    for at in ([0.0, 0.0, case["gateway_z"]], *case["stations"]):
        places.Add(ns.Vector(*map(float, at)))
    mobility = ns.MobilityHelper()
    mobility.SetPositionAllocator(places)
    mobility.SetMobilityModel("ns3::ConstantPositionMobilityModel")
    mobility.Install(nodes)
    ns.BuildingsHelper.Install(nodes)

    channel = ns.CreateObject[ns.YansWifiChannel]()
    channel.SetPropagationDelayModel(ns.CreateObject[ns.ConstantSpeedPropagationDelayModel]())
    channel.SetPropagationLossModel(hybrid_buildings(case))
    phy = ns.YansWifiPhyHelper()
    phy.SetChannel(channel)
    phy.SetErrorRateModel("ns3::YansErrorRateModel")
    for name in ("TxPowerStart", "TxPowerEnd"):
        phy.Set(name, ns.DoubleValue(case["tx_power_dbm"]))
    wifi_helper = ns.WifiHelper()
    wifi_helper.SetStandard(ns.WIFI_STANDARD_80211n)
    phy.Set("ChannelSettings", ns.StringValue("{36, 20, BAND_5GHZ, 0}"))
    wifi_helper.SetRemoteStationManager(
        "ns3::ConstantRateWifiManager",
        "DataMode",
        ns.StringValue(case["mode"]),
        "ControlMode",
        ns.StringValue("OfdmRate6Mbps"),
    )
    mac = ns.WifiMacHelper()
    mac.SetType("ns3::AdhocWifiMac")
    devices = wifi_helper.Install(phy, mac, nodes)
    stack = ns.InternetStackHelper()
    stack.Install(nodes)
    addresses = ns.Ipv4AddressHelper()
    addresses.SetBase(ns.Ipv4Address("10.0.0.0"), ns.Ipv4Mask("255.255.255.0"))
    interfaces = addresses.Assign(devices)

    # Fill the ARP caches first: with eight stations at once the ARP broadcasts collide and ns-3 stops retrying.
    ns.NeighborCacheHelper().PopulateNeighborCache()

    sinks, starts = [], []
    for station in range(1, stations + 1):
        sender, receiver = (station, 0) if case["direction"] == "up" else (0, station)
        to = ns.InetSocketAddress(interfaces.GetAddress(receiver), PORT + station).ConvertTo()
        sink = ns.PacketSinkHelper("ns3::TcpSocketFactory", to).Install(nodes.Get(receiver))
        sinks.append(sink.Get(0).GetObject[ns.PacketSink]())
        bulk = ns.BulkSendHelper("ns3::TcpSocketFactory", to)
        bulk.SetAttribute("MaxBytes", ns.UintegerValue(case["size_bytes"]))
        bulk.SetAttribute("SendSize", ns.UintegerValue(1024))
        starts.append(case.get("stagger_s", 0.0) * (station - 1))
        bulk.Install(nodes.Get(sender)).Start(ns.Seconds(starts[-1]))
    finished = _run_until(sinks, case["size_bytes"], case["limit_s"])
    return {"seconds": [None if end is None else end - start for end, start in zip(finished, starts, strict=True)]}


def success(case: dict[str, Any]) -> dict[str, Any]:
    """{"mcs": number, "snr_db": [...], "bits": number} -> probabilities that this many bits arrive without error."""
    model = ns.CreateObject[ns.YansErrorRateModel]()
    mode = ns.HtPhy.GetHtMcs(case["mcs"])
    vector = ns.WifiTxVector()
    vector.SetMode(mode)
    vector.SetPreambleType(ns.WIFI_PREAMBLE_HT_MF)
    vector.SetChannelWidth(ns.MHz_u(20))
    vector.SetNss(1)
    vector.SetGuardInterval(ns.NanoSeconds(800))
    chances = [model.GetChunkSuccessRate(mode, vector, 10.0 ** (snr / 10.0), case["bits"]) for snr in case["snr_db"]]
    return {"success": chances}


def _run_until(sinks: list[Any], size_bytes: int, limit_s: float) -> list[float | None]:
    """Run in steps of one millisecond until every sink has received its bytes."""
    finished: list[float | None] = [None] * len(sinks)
    while None in finished and ns.Simulator.Now().GetSeconds() < limit_s:
        ns.Simulator.Stop(ns.Seconds(POLL_S))
        ns.Simulator.Run()
        for index, sink in enumerate(sinks):
            if finished[index] is None and sink.GetTotalRx() >= size_bytes:
                finished[index] = ns.Simulator.Now().GetSeconds()
    return finished


def in_child_process(compute: Callable[[dict[str, Any]], dict[str, Any]], case: dict[str, Any]) -> dict[str, Any]:
    """Compute the answer in a forked process.

    ns-3's simulator is global, and a second simulation in the same process would see leftovers of the first. The child
    exits without running destructors, because their order cannot be controlled with ns-3 inside Python.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        code = 1
        try:
            with os.fdopen(writing, "w") as pipe:
                json.dump(compute(case), pipe)
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    if status != 0:
        sys.exit(f"ns-3 failed on {json.dumps(case)}")
    answer: dict[str, Any] = json.loads(text)
    return answer


def main() -> None:
    request = json.load(sys.stdin)
    # ns-3 and cling print remarks on stdout: redirect those to stderr and keep the original stdout for the answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    answer = {
        "path_loss": [in_child_process(path_loss, case) for case in request.get("path_loss", [])],
        "success": [in_child_process(success, case) for case in request.get("success", [])],
        "wifi": [in_child_process(wifi, case) for case in request.get("wifi", [])],
    }
    json.dump(answer, answers)
    answers.close()
    os._exit(0)


if __name__ == "__main__":
    main()
