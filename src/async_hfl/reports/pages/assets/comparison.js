// The page of a comparison: its tables and figures, then all charts for one panel at a time.
const AXES = {time:[D.clock, "seconds"], bytes:["bytes sent over all links", "bytes"], up:["bytes of models sent towards the cloud", "bytes"], updates:["device updates", "count"]};
let panel = D.panels[0] || null, axisKey = "time", valueKey = "metric", manner = "mean", scale = "auto";
// One very slow method would squeeze all others against the axis.
function isLog() {
  if (scale !== "auto") return scale === "log";
  const ends = panel.groups.flatMap(group => group.runs.map(run => run[axisKey][run[axisKey].length - 1])).filter(v => v > 0).sort((a, b) => a - b);
  return ends.length > 1 && ends[ends.length - 1] > 6 * ends[Math.floor(ends.length / 2)];
}
const redraws = [], redraw = () => redraws.forEach(act => act());
const onPanel = (box, make) => { const act = () => { const made = make(); box.replaceChildren(...(Array.isArray(made) ? made : [made]).filter(part => part)); }; redraws.push(act); act(); return box; };
const mean = values => values.length ? values.reduce((a, b) => a + b, 0) / values.length : null;
const known = values => values.filter(v => v !== null && v !== undefined);

page.append(el("header", {}, el("h1", {}, D.title), themeButton(), D.summary.map(text => el("p", {}, text))));
document.title = `${D.title} · async-hfl`;
for (const one of D.tables) section(one.title, "", "wide", table(one, false));

for (const figure of D.figures) {
  const categories = [...new Set(figure.lines.flatMap(line => line.x))], named = categories.some(x => typeof x === "string");
  const made = section(figure.title, "", "half");
  if (figure.bars || named) {
    const items = categories.flatMap(x => figure.lines.map((line, n) => { const k = line.x.indexOf(x); return k < 0 ? null : {name:figure.lines.length > 1 ? `${x} · ${line.name}` : String(x), value:line.y[k], low:line.low[k] ?? null, high:line.high[k] ?? null, colour:style(n).colour, text:line.y[k] === null ? "not reached" : undefined}; })).filter(item => item);
    made.append(barChart(() => ({label:figure.title, kind:figure.kind, name:figure.y_name, items})).box);
  } else made.append(lineChart(() => ({label:figure.title, height:300, x:{name:figure.x_name, kind:"number", log:figure.log_x, min:Math.min(...categories)}, y:{name:figure.y_name, kind:figure.kind, min:Math.min(0, ...figure.lines.flatMap(line => known(line.y)))},
    lines:figure.lines.map((line, n) => { const places = line.x.map((_, k) => k).filter(k => line.y[k] !== null); return {name:line.name, ...style(n), marks:true, points:places.map(k => [line.x[k], line.y[k]]), band:line.low.length ? places.filter(k => line.low[k] !== null && line.high[k] !== null).map(k => [line.x[k], line.low[k], line.high[k]]) : []}; })})));
}

if (D.panels.length > 1) {
  const bar = section("Part", "All charts below show the part that is chosen here.", "wide screen");
  bar.append(tools(selector("part", D.panels.map((one, k) => [k, one.name]), 0, key => { panel = D.panels[key]; redraw(); })));
}
if (panel) drawPanel();

function drawPanel() {
  const curves = section("Curves", "", "wide");
  const say = curves.querySelector(".say");
  head(curves).append(tools(
    choice("vertical", [["metric", panel.metric], ["loss", "loss"]], valueKey, key => { valueKey = key; redraw(); }),
    choice("horizontal", [["time", "time"], ["bytes", "bytes"], ["up", "uplink"], ["updates", "updates"]], axisKey, key => { axisKey = key; redraw(); }),
    choice("scale", [["auto", "auto"], ["linear", "linear"], ["log", "log"]], scale, key => { scale = key; redraw(); }),
    choice("runs", [["mean", "mean and spread"], ["each", "each run"]], manner, key => { manner = key; redraw(); })));
  curves.append(onPanel(el("div"), () => {
    const seeds = Math.max(...panel.groups.map(group => group.runs.length), 0);
    say.textContent = `${panel.name ? `${panel.name}. ` : ""}${manner === "mean" && seeds > 1 ? "Lines show the mean over seeds and bands the range; a run that has ended keeps its last value. " : ""}Dots mark when the target was held (${panel.held}). ${HINT}`;
    const log = isLog();
    return lineChart(() => ({
      label:`${panel.metric} against ${AXES[axisKey][0]}`, height:430, x:{name:AXES[axisKey][0], kind:AXES[axisKey][1], log}, y:{name:valueKey === "metric" ? `${panel.metric} on the test set` : "loss on the test set", kind:"metric"},
      rules:valueKey === "metric" && panel.target !== null ? [{y:panel.target, text:`target ${+panel.target.toPrecision(4)}`}] : [],
      lines:panel.groups.flatMap(group => {
        const common = {name:group.name, ...style(group.number), width:group.name === D.reference ? 3 : 2.1, step:true};
        if (manner === "mean") return [{...common, ...meanLine(group.runs, run => run[axisKey], run => run[valueKey], log)}];
        return group.runs.map(run => ({...common, label:`${group.name}, seed ${run.seed}`, faint:true, width:1.3, points:run[axisKey].map((x, i) => [x, run[valueKey][i]])}));
      }),
      dots:valueKey === "metric" && panel.target !== null ? panel.groups.flatMap(group => group.runs.filter(run => run.reached).map(run => ({name:group.name, x:run.reached[axisKey], y:panel.target, colour:style(group.number).colour}))) : [],
    }));
  }));

  let cost = "time";
  const race = section("Cost to the target", "Mean over the runs that reached the target; each dot is one run.", "half");
  const costs = el("div");
  head(race).append(tools(choice("cost", [["time", "time"], ["bytes", "bytes"], ["up", "uplink"], ["updates", "updates"], ["energy", "energy"]], cost, key => { cost = key; redraw(); })));
  race.append(onPanel(costs, () => {
    const kind = cost === "energy" ? "joules" : AXES[cost][1], name = cost === "energy" ? "energy of the devices, whole run" : AXES[cost][0];
    return barChart(() => ({label:`${name} to the target`, name, kind, mayLog:true, items:panel.groups.map(group => {
      const reached = group.runs.filter(run => run.reached), dots = known(cost === "energy" ? reached.map(run => run.energy) : reached.map(run => run.reached[cost])), value = mean(dots), short = reached.length < group.runs.length;
      return {name:group.name, value, dots, colour:style(group.number).colour, text:value === null ? (reached.length ? "not available" : "not reached") : `${show(value, kind)}${short ? ` (${reached.length} of ${group.runs.length})` : ""}`};
    })})).box;
  }));

  const bytes = section("Bytes by kind", "Mean over the runs, for the whole run and all links in both directions.", "half");
  const KINDS = [["model", "var(--c0)"], ["gradient", "var(--c4)"], ["basis", "var(--c3)"], ["control", "var(--c7)"]];
  let tier = "all";
  head(bytes).append(tools(selector("links", [["all", "all"], ["device-gateway up", "devices, up"], ["device-gateway down", "devices, down"], ["gateway-cloud up", "gateways, up"], ["gateway-cloud down", "gateways, down"]], tier, key => { tier = key; redraw(); })));
  bytes.append(onPanel(el("div"), () => {
    const items = panel.groups.filter(group => group.bytes).map(group => {
      const parts = KINDS.map(([kind, colour]) => [colour, Object.entries(group.bytes).filter(([key]) => tier === "all" || key === tier).reduce((sum, [, counts]) => sum + counts[kind], 0), kind]);
      return {name:group.name, parts, value:parts.reduce((sum, part) => sum + part[1], 0)};
    });
    return [keys(KINDS.map(([kind, colour]) => [colour, kind])), barChart(() => ({label:"bytes by kind", name:"bytes sent", kind:"bytes", items})).box];
  }));

  const rounds = section("Rounds", "Share of device updates that took longer than the time shown, from dispatch to aggregation.", "half");
  rounds.append(onPanel(el("div"), () => lineChart(() => ({label:"share of updates that took longer", height:300, x:{name:"time", kind:"seconds", log:true, say:"longer than "}, y:{name:"share of updates", kind:"share", log:true, min:.001, max:1}, lines:panel.groups.filter(group => group.rounds).map(group => ({name:group.name, ...style(group.number), points:group.rounds.x.map((x, i) => [Math.max(x, .01), group.rounds.y[i]])}))}))));
  const stale = section("Staleness", "Share of the mixed models that were staler than the value shown; 1 means that no other model was mixed in meanwhile.", "half");
  let where = "gateway";
  head(stale).append(tools(choice("tier", [["gateway", "at gateways"], ["cloud", "at the cloud"]], where, key => { where = key; redraw(); })));
  stale.append(onPanel(el("div"), () => lineChart(() => ({label:"staleness", height:300, x:{name:"staleness (epochs)", kind:"number", log:true, say:"staler than "}, y:{name:"share", kind:"share", min:0, max:1}, empty:"no method has staleness at this tier", lines:panel.groups.filter(group => group.staleness[where]).map(group => ({name:group.name, ...style(group.number), step:true, points:group.staleness[where].x.map((x, i) => [Math.max(x, .5), group.staleness[where].y[i]])}))}))));

  const part = section("Participation", "Updates of each device relative to the mean, sorted. A flat line at 1 means equal participation.", "half");
  part.append(onPanel(el("div"), () => lineChart(() => ({label:"updates per device relative to the mean", height:300, x:{name:"devices, from the fewest updates to the most", kind:"share", say:"device at "}, y:{name:"updates relative to the mean", kind:"number", min:0}, rules:[{y:1}], lines:panel.groups.filter(group => group.participation).map(group => ({name:group.name, ...style(group.number), points:group.participation.map((y, i, all) => [all.length > 1 ? i / (all.length - 1) : 0, y])}))}))));

  const fair = section("By class", "Metric of the final model on the test set, mean over the runs.", "half");
  fair.append(onPanel(el("div"), () => {
    const groups = panel.groups.filter(group => group.by_class), classes = groups.length ? Object.keys(groups[0].by_class) : [];
    if (!classes.length) return el("p", {class:"none"}, "This task has no classes.");
    const values = groups.flatMap(group => classes.map(one => group.by_class[one])), high = panel.direction === "at_least" ? 1 : Math.max(...values);
    return heatMap(() => ({label:"accuracy by class", rows:groups.map(group => group.name), columns:classes.map(text => ({text:text.replace(/^class_/, "").replace(/_/g, " ")})), value:(i, j) => groups[i].by_class[classes[j]], high, name:panel.metric, kind:panel.direction === "at_least" ? "share" : "number", xName:"class", numbers:v => panel.direction === "at_least" ? Math.round(100 * v) : trim(v, 2)})).box;
  }));
  section("More tables", "", "wide", onPanel(el("div"), () => panel.tables.map(one => table(one))));
}

const last = section("Settings and versions", "", "wide");
for (const one of D.details) last.append(el("details", {}, el("summary", {}, one.title), table(one, false)));
page.append(el("footer", {}, D.command ? el("code", {}, D.command) : null, el("span", {}, "async-hfl; this self-contained file loads nothing from the network")));
