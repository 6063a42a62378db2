// The page of one run.
// A node by its name, or by its number if it has none.
const named = (kind, number) => D.names[kind][number] || `${kind} ${number}`, both = (kind, number) => `${kind} ${number}${D.names[kind][number] ? `, ${D.names[kind][number]}` : ""}`;
const AXES = {time:[D.clock, "seconds"], bytes:["bytes sent over all links", "bytes"], up:["bytes of models sent towards the cloud", "bytes"], updates:["device updates", "count"]};
document.title = `${D.title} · async-hfl`;
page.append(el("header", {}, el("h1", {}, D.title), themeButton(), D.summary.map(text => el("p", {}, text))));
cards(D.cards);

// Curves
let axisKey = "time", valueKey = "metric";
const curves = section("Learning", HINT, "wide"), field = el("div");
const drawCurve = () => field.replaceChildren(lineChart(() => ({
  label:`${D.metric} against ${AXES[axisKey][0]}`, height:380, x:{name:AXES[axisKey][0], kind:AXES[axisKey][1]}, y:{name:valueKey === "metric" ? `${D.metric} on the test set` : "loss on the test set", kind:"metric"}, empty:"no evaluation yet",
  rules:valueKey === "metric" ? [{y:D.target, text:`target ${D.target}`}] : [], spans:axisKey === "time" && D.warmup ? [{from:0, to:D.warmup, text:"warm-up"}] : [],
  lines:[{name:valueKey === "metric" ? D.metric : "loss", colour:"var(--c0)", step:true, points:D.curve[axisKey].map((x, i) => [x, D.curve[valueKey][i]]).filter(p => p[1] !== null)}],
  dots:valueKey === "metric" && D.reached && D.reached[axisKey] !== undefined ? [{x:D.reached[axisKey], y:D.target, colour:"var(--c1)"}] : [],
})));
head(curves).append(tools(
  choice("vertical", [["metric", D.metric], ["loss", "loss"]], valueKey, key => { valueKey = key; drawCurve(); }),
  choice("horizontal", [["time", "time"], ["bytes", "bytes"], ["up", "uplink"], ["updates", "updates"]], axisKey, key => { axisKey = key; drawCurve(); })));
curves.append(field); drawCurve();

// Map, with the association over time
const world = D.map;
if (world.why) section("Map", "", "wide", el("p", {class:"none"}, world.why));
else {
  const solved = world.steps.length, made = section("Map and association", "", "wide"), say = made.querySelector(".say");
  const parts = {box:el("div", {class:"map"}), canvas:el("canvas", {tabindex:0, "aria-label":"map: drag to move, scroll to zoom, arrow keys and plus and minus work too"}), tip:el("div", {class:"over label", role:"status"}), legend:el("div", {class:"map-keys"})};
  parts.box.append(parts.canvas, parts.tip);
  const now = world.drawn.map(() => -1);
  if (solved) { world.gateway_of = now; world.load = world.gateway_x.map(() => 0); }
  made.append(parts.box, parts.legend);
  const map = siteMap(parts, world);
  const buttons = [];
  themed.push(map.repaint);
  plots.push(() => { map.resize(); map.fit(); });
  const at = place => {
    now.fill(-1);
    for (const step of world.steps.slice(0, place + 1)) for (const [device, gateway] of step.changed) now[device] = gateway;
    const step = world.steps[place];
    map.associate(now, world.gateway_x.map((_, j) => step.load[j] || 0));
    say.textContent = `After ${duration(step.at)}: solution ${step.solved} of ${world.steps[solved - 1].solved}, ${grouped(step.moved)} devices moved${step.without ? `, ${grouped(step.without)} have no gateway` : ""}.`;
  };
  if (solved) {
    const slider = el("input", {type:"range", id:"association", min:0, max:solved - 1, value:solved - 1, "aria-label":"solution shown", oninput:event => at(+event.target.value)});
    let playing = null;
    const stop = () => { clearInterval(playing); playing = null; play.textContent = "▶ play"; };
    const play = el("button", {type:"button", onclick:() => { if (playing) return stop(); if (+slider.value >= solved - 1) slider.value = 0; play.textContent = "■ stop"; playing = setInterval(() => { if (+slider.value >= solved - 1) return stop(); slider.value = +slider.value + 1; at(+slider.value); }, Math.max(60, Math.min(600, 9000 / solved))); }}, "▶ play");
    if (solved > 1) { buttons.push(play); made.append(el("div", {class:"screen"}, slider)); }
    at(solved - 1);
  } else say.textContent = "No association was solved in this run; each device is drawn with its fastest gateway.";
  head(made).append(tools(...buttons, choice("lines", [["own", "association"], ...(world.link_device.length ? [["all", "all links"]] : []), ["none", "sites only"]], "own", map.choose)));
  const remarks = [...world.notes, world.credit].filter(text => text);
  if (remarks.length) made.append(notes(remarks));
  map.choose("own");
}

// Timeline
if (D.timeline) timeline(section("Timeline of a gateway", "Triangles mark the arrival of the gateway's model at the cloud; white means idle. Point at a job to see its times.", "wide"), D.timeline);

// Delays and staleness
const least = D.timeline ? Math.min(.01, D.timeline.typical / 100) || .01 : .01;
const delays = section("Delays", "Share of the aggregated updates for which this part of the round took longer than the time shown.", "half");
delays.append(lineChart(() => ({label:"delays", height:300, x:{name:"time", kind:"seconds", log:true, say:"longer than "}, y:{name:"share of updates", kind:"share", log:true, min:.001, max:1}, empty:"nothing was aggregated", lines:D.delays.map((one, k) => ({name:one.name, ...style(k), width:k ? 1.9 : 2.8, points:one.x.map((x, i) => [Math.max(x, least), one.y[i]])}))})));
let tier = "gateway";
const stale = section("Staleness", "Staleness of the models that were mixed in; 1 means that no other model was mixed in meanwhile.", "half"), staleField = el("div");
const drawStale = () => { const bins = D.staleness[tier], total = bins.reduce((sum, bin) => sum + bin[2], 0);
  staleField.replaceChildren(columnChart(() => ({label:`staleness at the ${tier}`, height:300, x:{name:"staleness (epochs)", kind:"count"}, y:{name:"share of mixed models", kind:"share"}, empty:"no model was mixed in here", columns:bins.map(([from, to, count]) => ({from:from - .5, to:to - .5, value:count / total, title:to - from === 1 ? `staleness ${from}` : `staleness ${from} to ${to - 1}`, rows:[["var(--c0)", "share", show(count / total, "share")], [null, "count", grouped(count)]]}))})).box); };
head(stale).append(tools(choice("tier", [["gateway", "at gateways"], ["cloud", "at the cloud"]], tier, key => { tier = key; drawStale(); })));
stale.append(staleField); drawStale();
if (D.bounds) section(D.bounds.title, "", "wide", table(D.bounds, false));

// Devices
const fleet = D.devices, few = fleet.rows.length;
const contributed = fleet.never_count ? `${grouped(fleet.never_count)} of ${grouped(fleet.devices)} devices contributed no update${fleet.never_count <= 12 ? `: ${fleet.never.map(i => D.names.device[i] || i).join(", ")}` : ""}. ` : "Every device contributed. ";
const homeColour = row => row.gateway < 0 || !D.colours.length ? "var(--c7)" : D.colours[row.gateway];
const part = section("Participation", `${contributed}The tenth of the devices with the fewest updates contributed ${show(fleet.least_tenth, "share")} of all updates, the tenth with the most ${show(fleet.most_tenth, "share")}.`, "half");
let measureOf = "updates";
const MEASURES = {updates:["device updates", "count"], joules:["energy", "joules"], compute_s:["time spent training", "seconds"]};
const partField = el("div"), drawPart = () => {
  const [name, kind] = MEASURES[measureOf], rows = fleet.rows.filter(row => row[measureOf] !== null).sort((a, b) => a[measureOf] - b[measureOf] || a.device - b.device);
  partField.replaceChildren(columnChart(() => ({label:`${name} by device`, height:300, x:{name:few < fleet.devices ? `${few} of ${grouped(fleet.devices)} devices, sorted` : "devices, sorted", kind:"count", min:0, max:rows.length}, y:{name, kind}, rules:measureOf === "updates" && fleet.median > 0 ? [{y:fleet.median, text:`median ${trim(fleet.median)}`, left:true}] : [], empty:"not available for this run",
    columns:rows.map((row, i) => ({from:i, to:i + 1, value:row[measureOf], missing:measureOf === "updates" && !row.updates, colour:homeColour(row), title:both("device", row.device), rows:[[null, "device updates", grouped(row.updates)], [null, "jobs", grouped(row.asked)], ...(row.last === null ? [] : [[null, "last update", duration(row.last)]]), ...(row.gateway < 0 ? [] : [[null, "gateway", D.names.gateway[row.gateway] || String(row.gateway)]]), ...(row.score === null ? [] : [[null, D.metric, show(row.score, "metric")]]), ...(row.joules === null ? [] : [[null, "energy", show(row.joules, "joules")]])]}))})).box); };
if (fleet.rows.some(row => row.joules !== null)) head(part).append(tools(choice("what", [["updates", "updates"], ["joules", "energy"], ["compute_s", "training"]], measureOf, key => { measureOf = key; drawPart(); })));
part.append(partField, el("p", {class:"say"}, `Colours show the last gateway of each device${D.map.why ? "" : ", as on the map"}. A cross marks a device without any update.`)); drawPart();
const scored = fleet.rows.filter(row => row.score !== null).sort((a, b) => a.score - b.score || a.device - b.device);
const each = section(`${titled(D.metric)} by device`, "Metric of the final model on each device's own data, sorted.", "half");
if (scored.length) each.append(columnChart(() => ({label:"metric by device", height:300, x:{name:"devices, sorted", kind:"count", min:0, max:scored.length}, y:{name:D.metric, kind:"number", min:0}, columns:scored.map((row, i) => ({from:i, to:i + 1, value:row.score, colour:homeColour(row), title:both("device", row.device), rows:[[null, D.metric, show(row.score, "metric")], [null, "device updates", grouped(row.updates)]]}))})).box);
else each.append(el("p", {class:"none"}, D.deployed ? "Not measured in a deployment." : "Not available: it is measured at the end of a run, if the task has data on devices."));
if (D.classes) {
  const c = D.classes, ratio = D.direction === "at_least", most = Math.max(...c.values.flat().filter(v => v !== null));
  section(`${titled(D.metric)} by ${D.classes.what} over time`, ratio ? "Darker is better. Point at a cell to see its value." : "Darker is larger. Point at a cell to see its value.", "wide", heatMap(() => ({label:"metric by class over time", rows:c.classes.map(name => isNaN(name) ? name : `class ${name}`), columns:c.at.map((at, k) => ({text:duration(at), say:`epoch ${c.epoch[k]}, after ${duration(at)}`})), value:(i, j) => c.values[i][j], high:ratio ? 1 : most, name:D.metric, kind:ratio ? "share" : "number", xName:`${D.clock} of the evaluation`})).box);
}

// Decisions
const d = D.decisions, deciding = section("Decisions", `${grouped(d.selections)} selections, in ${show(d.selections ? d.bound / d.selections : 0, "share")} of which the bandwidth limit excluded a candidate; ${grouped(d.lone)} selected a single device that exceeds the limit by itself; ${grouped(d.solved)} association${d.solved === 1 ? "" : "s"}.${d.selection_gap === null ? "" : ` Selections were solved to a gap of at most ${show(d.selection_gap, "share")}.`}`, "half");
const timed = Object.entries(d.times).filter(([, times]) => times);
if (timed.length) deciding.append(lineChart(() => ({label:"share of decisions that took longer", height:270, x:{name:"wall-clock time", kind:"seconds", log:true, say:"longer than "}, y:{name:"share of decisions that took longer", kind:"share", min:0, max:1}, lines:timed.map(([what, times], k) => { let left = times.count; const points = [[times.histogram[0][0] || 1e-9, 1]]; for (const [, to, count] of times.histogram) { left -= count; points.push([Math.min(to, times.most_s), left / times.count]); } return {name:what, ...style(k), points}; })})),
  table({columns:[{name:"decision", kind:"text"}, {name:"count", kind:"count"}, {name:"median", kind:"seconds"}, {name:"99 %", kind:"seconds"}, {name:"longest", kind:"seconds"}], rows:timed.map(([what, times]) => [what, times.count, times.median_s, times.p99_s, times.most_s])}));
else deciding.append(el("p", {class:"none"}, D.deployed ? "Decision times are not recorded in a deployment." : "Decision times are available when a run is complete."));
const solutions = d.association, proven = solutions.gap.some(gap => gap !== null);
const gaps = section("Association", proven ? "Gap between each solution and its proven bound, and the number of devices that it moved." : "Number of devices that each solution moved.", "half");
if (solutions.at.length > 1) {
  if (proven) gaps.append(lineChart(() => ({label:"gap of the association", height:210, x:{name:D.clock, kind:"seconds"}, y:{name:"gap", kind:"share", min:0}, lines:[{name:"gap", colour:"var(--c0)", points:solutions.at.map((at, i) => [at, solutions.gap[i]]).filter(p => p[1] !== null), step:true}]})));
  gaps.append(lineChart(() => ({label:"devices moved", height:210, x:{name:D.clock, kind:"seconds"}, y:{name:"devices moved", kind:"count", min:0}, lines:[{name:"devices moved", colour:"var(--c1)", points:solutions.at.map((at, i) => [at, solutions.moved[i]]), marks:true}]})));
} else gaps.append(el("p", {class:"none"}, d.solved ? "Solved once: this method does not change its association." : "No association was solved."));

// Bytes
if (D.bytes) {
  const KINDS = [["model", "var(--c0)"], ["gradient", "var(--c4)"], ["basis", "var(--c3)"], ["control", "var(--c7)"]];
  section("Bytes", "All messages of the run, counted when they are sent.", "wide", keys(KINDS.map(([kind, colour]) => [colour, kind])), barChart(() => ({label:"bytes by link, direction and kind", name:"bytes sent", kind:"bytes", row:34, items:D.bytes.rows.slice(0, -1).map(row => ({name:row[0], value:row[5], parts:KINDS.map(([kind, colour], k) => [colour, row[k + 1], kind])}))})).box, table(D.bytes, false));
}
for (const one of D.tables) section(one.title, "", "half", table(one, false));

// Events
const life = D.lifecycle, lines = Object.entries(life.lines);
const happened = section("Events", life.all ? Object.entries(life.counts).map(([what, count]) => `${what.replace(/_/g, " ")}: ${grouped(count)}`).join("; ") + "." : "No events yet.", D.tables.length % 2 ? "half" : "wide");
if (lines.length) happened.append(lineChart(() => ({label:"outages", height:270, x:{name:D.clock, kind:"seconds"}, y:{name:lines.length > 1 ? "number" : lines[0][0], kind:"count", min:0}, lines:lines.map(([name, points], k) => ({name, ...style(k + 1), step:true, points}))})));
if (life.events.length) happened.append(el("details", {}, el("summary", {}, life.all > life.events.length ? `the first ${life.events.length} of ${grouped(life.all)} events` : `${life.all} event${life.all === 1 ? "" : "s"}`), table({columns:[{name:"time", kind:"seconds"}, {name:"event", kind:"text"}, {name:"node", kind:"text"}, {name:"detail", kind:"text"}], rows:life.events.map(([at, what, node, detail]) => [at, what.replace(/_/g, " "), node, detail])})));

const last = section("Settings and versions", "", "wide");
for (const one of D.details) last.append(el("details", {}, el("summary", {}, one.title), table(one, false)));
page.append(el("footer", {}, el("span", {}, `Made from the journal in ${D.path}${D.digest ? `, digest ${D.digest.slice(0, 16)}` : ""}`), el("span", {}, "async-hfl; this self-contained file loads nothing from the network")));
