// Horizontal bars with names at the left, for any width of screen. Values of single runs are dots.
// spec(): {label, kind, items:[{name, value, low, high, dots, colour, parts:[[colour, value, name]], note, text}], min, max}
function barChart(spec) {
  return plot((width, tip) => {
    const now = spec(), items = now.items, row = now.row || Math.min(44, Math.max(28, Math.round(230 / Math.max(items.length, 1)))), top = 4, bottom = 40;
    const height = top + row * items.length + bottom, made = svg("svg", {width, height, viewBox:`0 0 ${width} ${height}`});
    if (!items.length) return made;
    const shorten = text => { let cut = String(text); const room = width * .38; if (measure(cut) <= room) return cut; while (cut.length > 3 && measure(`${cut}…`) > room) cut = cut.slice(0, -1); return `${cut}…`; };
    const left = Math.ceil(Math.max(...items.map(item => measure(shorten(item.name))))) + 10;
    const most = now.max ?? (Math.max(...items.flatMap(item => [item.value ?? 0, item.high ?? 0, ...(item.dots || [])])) || 1);
    // If values differ by a large factor, marks on a logarithmic scale replace the bars.
    const positive = items.flatMap(item => [item.value, ...(item.dots || [])]).filter(v => v > 0), log = Boolean(now.mayLog) && positive.length > 1 && most / Math.min(...positive) > 12;
    const scaled = {name:log ? `${now.name}, logarithmic` : now.name || "", kind:now.kind, log, min:log ? Math.min(...positive) * .8 : now.min ?? 0, max:log ? most * 1.1 : most, tight:true};
    // Bars are shortened so that the text after each of them fits.
    const unit = axis(scaled, 0, 1, 1), room = width - left - 4;
    const length = Math.max(60, Math.min(room - 8, ...items.map(item => (room - measure(item.text ?? show(item.value, now.kind)) - 14) / Math.max(.02, ...[item.value, item.high, ...(item.dots || [])].filter(v => v > 0).map(v => unit.scale(v))))));
    const x = axis(scaled, left, left + length, 64), zero = x.scale(Math.max(0, x.low)), end = top + row * items.length;
    let free = -Infinity;
    for (const tick of x.ticks) {
      const at = x.scale(tick.v), half = measure(tick.text) / 2 + 3;
      made.append(svg("line", {class:"grid", x1:at, x2:at, y1:top, y2:end}));
      if (at - half > free) { made.append(svg("text", {x:at, y:end + 16, "text-anchor":"middle"}, tick.text)); free = at + half; }
    }
    made.append(svg("text", {x:width - 2, y:end + 34, "text-anchor":"end", class:"strong name"}, x.name));
    items.forEach((item, i) => {
      const y = top + row * i, middle = y + row / 2, group = svg("g");
      group.append(svg("rect", {x:0, y, width, height:row, fill:"transparent"}), svg("text", {x:left - 10, y:middle + 4, "text-anchor":"end", class:"strong"}, shorten(item.name)));
      let from = zero;
      for (const [colour, value] of item.parts || (item.value === null ? [] : [[item.colour || "var(--c0)", item.value]])) {
        const wide = Math.max(value > 0 ? .6 : 0, x.scale(value + x.low) - x.scale(x.low) - (item.parts ? 0 : zero - x.scale(x.low)));
        if (log) { from = x.scale(value); group.append(svg("line", {class:"axis", x1:left, x2:left + length, y1:middle, y2:middle}), svg("line", {x1:from, x2:from, y1:middle - 9, y2:middle + 9, "stroke-width":3, style:`stroke:${colour}`, class:"data"})); continue; }
        group.append(svg("rect", {x:from, y:y + row * .2, width:Math.max(0, wide), height:row * .6, rx:item.parts ? 0 : 2.5, style:`fill:${colour}`, "fill-opacity":item.dots ? .45 : 1, class:"data"}));
        from += wide;
      }
      if (item.low !== null && item.low !== undefined && item.high > item.low) group.append(svg("path", {d:`M${x.scale(item.low)} ${middle - 4}v8m0-4H${x.scale(item.high)}m0-4v8`, fill:"none", "stroke-width":1.4, style:"stroke:var(--ink)"}));
      for (const dot of item.dots || []) group.append(svg("circle", {cx:x.scale(dot), cy:middle, r:3.8, style:`fill:${item.colour};stroke:var(--card)`, "stroke-width":1.2, class:"data"}));
      const after = item.value === null ? zero : Math.max(from, ...(item.dots || []).map(dot => x.scale(dot) + 4), item.high ? x.scale(item.high) : 0);
      group.append(svg("text", {x:after + 7, y:middle + 4, class:item.value === null ? null : "strong", "paint-order":"stroke", "stroke-width":5, style:"stroke:var(--card)"}, item.text ?? show(item.value, now.kind)));
      const rows = item.parts ? item.parts.map(([colour, value, name]) => [colour, name, show(value, now.kind)]) : [[item.colour || null, now.name || now.label || "", show(item.value, now.kind)], ...(item.note ? [[null, item.note]] : [])];
      group.addEventListener("pointermove", event => { const box = made.getBoundingClientRect(); tip.show(event.clientX - box.left, (middle) * box.width / width, item.name, rows); });
      group.addEventListener("pointerleave", () => tip.hide());
      made.append(group);
    });
    return made;
  }, spec().label);
}

// Columns side by side: a histogram, or one column per device.
// spec(): {label, x:{name, kind}, y:{name, kind, log}, columns:[{from, to, value, colour, title, rows}], rules}
function columnChart(spec) {
  return plot((width, tip) => {
    const now = spec(), height = Math.round(Math.min(now.height || 260, Math.max(210, width * .6))), made = svg("svg", {width, height, viewBox:`0 0 ${width} ${height}`}), columns = now.columns;
    if (!columns.length) { made.append(svg("text", {x:width / 2, y:height / 2, "text-anchor":"middle"}, now.empty || "nothing to show yet")); return made; }
    const most = Math.max(...columns.map(c => c.value), ...(now.rules || []).map(r => r.y)) || 1;
    const f = frame(made, width, height, {tight:true, min:columns[0].from, max:columns[columns.length - 1].to, ...now.x}, {min:0, max:most, ...now.y}, {xGrid:false});
    const gap = columns.length > width / 6 ? 0 : 1;
    for (const c of columns) {
      const a = f.x.scale(c.from), b = f.x.scale(c.to), y = f.y.scale(Math.max(c.value, f.y.low));
      made.append(svg("rect", {x:a + gap / 2, width:Math.max(.6, b - a - gap), y, height:Math.max(c.value > 0 ? .8 : 0, f.bottom - y), style:`fill:${c.colour || "var(--c0)"}`, class:"data"}));
      if (c.value === 0 && c.missing) made.append(svg("path", {d:`M${(a + b) / 2 - 3} ${f.bottom - 8}l6 6m0-6l-6 6`, "stroke-width":1.8, style:"stroke:var(--bad)"}));
    }
    for (const rule of now.rules || []) {
      made.append(svg("line", {x1:f.left, x2:f.right, y1:f.y.scale(rule.y), y2:f.y.scale(rule.y), "stroke-dasharray":"5 4", "stroke-width":1.3, style:"stroke:var(--ink)", "stroke-opacity":.65}));
      made.append(svg("text", {x:rule.left ? f.left + 6 : f.right - 4, y:f.y.scale(rule.y) - 5, "text-anchor":rule.left ? "start" : "end", class:"strong", "paint-order":"stroke", "stroke-width":4, style:"stroke:var(--card)"}, rule.text));
    }
    const shade = svg("rect", {y:f.top, height:f.bottom - f.top, style:"fill:var(--ink)", "fill-opacity":.1, visibility:"hidden", "pointer-events":"none"});
    made.append(shade);
    made.addEventListener("pointerleave", () => { shade.setAttribute("visibility", "hidden"); tip.hide(); });
    made.addEventListener("pointermove", event => {
      const box = made.getBoundingClientRect(), x = f.x.invert((event.clientX - box.left) * width / box.width), c = columns.find(one => x >= one.from && x < one.to);
      if (!c) { shade.setAttribute("visibility", "hidden"); return tip.hide(); }
      const a = f.x.scale(c.from), b = f.x.scale(c.to);
      shade.setAttribute("x", a); shade.setAttribute("width", Math.max(1, b - a)); shade.setAttribute("visibility", "visible");
      tip.show(b * box.width / width, height / 2.4, c.title, c.rows);
    });
    return made;
  }, spec().label);
}

// A heat map: rows x columns of values from low to high. spec(): {label, rows, columns:[{text, wide}], value(i, j), x, low, high}
function heatMap(spec) {
  return plot((width, tip) => {
    const now = spec(), row = now.rows.length > 40 ? 9 : now.rows.length > 22 ? 14 : Math.min(36, Math.max(24, Math.round(250 / now.rows.length))), every = Math.ceil(13 / row), bottom = 40;
    const names = now.rows.map(text => { let cut = String(text); while (cut.length > 3 && measure(cut) > width * .36) cut = `${cut.slice(0, -2)}…`; return cut; });
    const left = Math.ceil(Math.max(...names.map(text => measure(text)))) + 10, cell = (width - left - 2) / now.columns.length, height = row * now.rows.length + bottom;
    const made = svg("svg", {width, height, viewBox:`0 0 ${width} ${height}`}), high = now.high ?? 1, low = now.low ?? 0, end = row * now.rows.length;
    now.rows.forEach((_, i) => {
      if (i % every === 0) made.append(svg("text", {x:left - 8, y:row * (i + .5) + 4, "text-anchor":"end", class:"strong"}, names[i]));
      now.columns.forEach((column, j) => {
        const value = now.value(i, j);
        if (value === null || value === undefined) return;
        const share = Math.min(1, Math.max(0, (value - low) / (high - low || 1)));
        const field = svg("rect", {x:left + cell * j, y:row * i + .5, width:Math.max(.5, cell - (cell > 8 ? 1 : -.4)), height:row - 1, style:"fill:var(--heat)", "fill-opacity":(.06 + .94 * share).toFixed(3), class:"data"});
        field.addEventListener("pointerenter", () => { const k = made.getBoundingClientRect().width / width; tip.show((left + cell * (j + .5)) * k, row * (i + .5) * k, `${now.rows[i]}, ${column.say || column.text}`, [["var(--heat)", now.name || "", show(value, now.kind || "share")]]); });
        made.append(field);
        if (now.numbers && cell > 44 && row >= 20) made.append(svg("text", {x:left + cell * (j + .5), y:row * (i + .5) + 4, "text-anchor":"middle", "pointer-events":"none", style:`fill:${share > .5 ? "var(--card)" : "var(--ink)"}`}, now.numbers(value)));
      });
    });
    let free = -Infinity, told = null;
    now.columns.forEach((column, j) => { const at = left + cell * (j + .5), half = measure(column.text) / 2 + 3; const place = Math.min(at, width - half); if (column.text && column.text !== told && place - half > free && place - half > 0) { told = column.text; made.append(svg("text", {x:place, y:end + 16, "text-anchor":"middle"}, column.text)); free = place + half; } });
    if (now.xName) made.append(svg("text", {x:width - 2, y:end + 34, "text-anchor":"end", class:"strong name"}, now.xName));
    made.addEventListener("pointerleave", () => tip.hide());
    return made;
  }, spec().label);
}
