// The activity of each device of a gateway: download, training, upload, waiting, idle.
const DID = [["download", "var(--download)"], ["training", "var(--train)"], ["upload", "var(--upload)"], ["waiting to be sent or aggregated", "var(--wait)"], ["no result arrived", "var(--lost)"], ["in flight when the run ended", "var(--open)"]];
function timeline(made, data) {
  const gateways = [...new Set(data.jobs.map(job => job[0]))].sort((a, b) => a - b);
  let gateway = gateways[0], span = data.windows[0], from = span.from, to = span.to;
  // The first jobs may be a warm-up that takes much longer than the others.
  const first = (data.jobs.find(job => data.reasons[job[8]] !== "warmup") || data.jobs[0])[2];
  const narrow = () => { const whole = span.to - span.from, length = Math.min(whole, Math.max(10 * data.typical, Math.min(40 * data.typical, whole / 4))); from = Math.min(Math.max(span.from, first), span.to - length); to = from + length; };
  narrow();
  const moment = at => data.typical < 1 ? `${at.toFixed(3)} s` : duration(at);
  const chart = plot((width, tip) => {
    const jobs = data.jobs.filter(job => job[0] === gateway && job[7] >= from && job[2] <= to), devices = [...new Set(data.jobs.filter(job => job[0] === gateway && job[7] >= span.from && job[2] <= span.to).map(job => job[1]))].sort((a, b) => a - b);
    const row = 17, top = 22, left = Math.ceil(Math.max(...devices.map(d => measure(named("device", d))), measure("to the cloud"))) + 10, height = top + row * devices.length + 44, right = width - 8, bottom = top + row * devices.length;
    const picture = svg("svg", {width, height, viewBox:`0 0 ${width} ${height}`}), x = axis({name:D.clock, kind:"seconds", min:from, max:to, tight:true}, left, right, width < 500 ? 52 : 76), X = t => Math.min(right, Math.max(left, x.scale(t)));
    let free = -Infinity;
    for (const tick of x.ticks) {
      const at = x.scale(tick.v), half = measure(tick.text) / 2 + 3;
      picture.append(svg("line", {class:"grid", x1:at, x2:at, y1:top, y2:bottom}));
      if (at - half > free && at + half <= width) { picture.append(svg("text", {x:at, y:bottom + 16, "text-anchor":"middle"}, tick.text)); free = at + half; }
    }
    picture.append(svg("text", {x:right, y:bottom + 34, "text-anchor":"end", class:"strong name"}, x.name), svg("text", {x:left - 8, y:14, "text-anchor":"end", class:"strong"}, "to the cloud"));
    for (const [one, at] of data.uploads) if (one === gateway && at >= from && at <= to) picture.append(svg("path", {d:`M${X(at)} 4l4 7h-8z`, style:"fill:var(--on)"}), svg("line", {x1:X(at), x2:X(at), y1:11, y2:bottom, style:"stroke:var(--on)", "stroke-opacity":.35, "stroke-dasharray":"2 3"}));
    devices.forEach((device, i) => { picture.append(svg("text", {x:left - 8, y:top + row * (i + .5) + 4, "text-anchor":"end", class:"strong"}, named("device", device)), svg("line", {class:"grid", x1:left, x2:right, y1:top + row * (i + .5), y2:top + row * (i + .5)})); });
    for (const job of jobs) {
      const [, device, sent, downloaded, trained, began, arrived, ended, reason] = job, y = top + row * devices.indexOf(device) + 3, group = svg("g");
      const part = (a, b, kind) => { if (b > a && b >= from && a <= to) group.append(svg("rect", {x:X(a), width:Math.max(.7, X(b) - X(a)), y, height:row - 6, rx:1.5, style:`fill:${DID[kind][1]}`, class:"data"})); };
      const none = data.reasons[reason] === "run ended" ? 5 : 4;
      if (downloaded === null) part(sent, ended, none);
      else {
        part(sent, downloaded, 0); part(downloaded, trained, 1);
        if (arrived !== null) { part(trained, began, 3); part(began, arrived, 2); part(arrived, ended, 3); } else part(trained, ended, none);
      }
      const rows = downloaded === null ? [[null, "in flight", duration(ended - sent)]] : [[DID[0][1], "download", duration(downloaded - sent)], [DID[1][1], "training", duration(trained - downloaded)], ...(arrived === null ? [] : [[DID[2][1], "upload", duration(arrived - began)]]), ...(arrived !== null && ended - arrived > data.typical / 1000 ? [[DID[3][1], "waiting", duration(ended - arrived)]] : [])];
      group.addEventListener("pointermove", event => { const box = picture.getBoundingClientRect(); tip.show(event.clientX - box.left, (y + row) * box.width / width, `${both("device", device)}, sent at ${moment(sent)}`, [...rows, [null, "end", data.reasons[reason]]]); });
      group.addEventListener("pointerleave", () => tip.hide());
      picture.append(group);
    }
    return picture;
  }, "timeline of a gateway");
  const note = el("p", {class:"say"}), tell = () => { const all = data.thinned[gateway], shown = new Set(data.jobs.filter(job => job[0] === gateway).map(job => job[1])).size; note.textContent = [gateways.length < data.gateways ? `${gateways.length} of ${grouped(data.gateways)} gateways are available here.` : "", all ? `${shown} of the ${grouped(all)} devices are shown, an even sample from the busiest to the least busy.` : ""].join(" ").trim(); };
  const place = () => span.to - span.from > to - from ? 1000 * (from - span.from) / (span.to - span.from - (to - from)) : 0;
  const slider = el("input", {type:"range", min:0, max:1000, value:place(), "aria-label":"time shown", class:"screen", oninput:event => { const length = to - from, room = span.to - span.from - length; from = span.from + room * event.target.value / 1000; to = from + length; chart.again(); }});
  const zoom = factor => { const middle = (from + to) / 2, length = Math.min(span.to - span.from, Math.max(data.typical / 2, (to - from) * factor)); from = Math.min(Math.max(span.from, middle - length / 2), span.to - length); to = from + length; slider.value = place(); chart.again(); };
  const window = data.windows.length > 1 ? choice("part of the run", data.windows.map((one, k) => [String(k), one.name]), "0", key => { span = data.windows[key]; narrow(); slider.value = place(); chart.again(); }) : null;
  head(made).append(tools(selector("gateway", gateways.map(one => [one, D.names.gateway[one] ? `${one}, ${D.names.gateway[one]}` : one]), gateway, key => { gateway = +key; tell(); chart.again(); }), window, el("div", {class:"choice"}, el("button", {type:"button", "aria-label":"show a longer period", onclick:() => zoom(2)}, "−"), el("button", {type:"button", "aria-label":"show a shorter period", onclick:() => zoom(.5)}, "+"))));
  made.append(keys(DID.map(([text, colour]) => [colour, text])), chart.box, slider, note);
  tell();
}
