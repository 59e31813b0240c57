"use strict";
// What stands on a timeline, and where. timeline_draw.js paints it, timeline.js lets the reader move in it.
// Times are nanoseconds from the start of a request. Names from traces reach a canvas or textContent only.
const launchgapTimelineModel = (function () {
  const GUTTER = 46;
  const RIGHT = 10;
  const HEADING = 26;
  const BETWEEN = 16;
  const AXIS = 22;
  const HEIGHTS = { NVTX: 16, host: 20, GPU: 20, gaps: 12 };
  const MOST_ROWS = 8;
  const LOOK_BACK = 64; // items that may lie between an item and one it is inside of
  const CALL_STYLES = { launches: "tl-launch", synchronising: "tl-wait", copies: "tl-wait" };
  const GAPS = [
    ["tl-bound", "launch-bound gap", "the call that launched what came next ended after the gap had begun: the GPU waited for the host"],
    ["tl-device", "device gap", "what came next had been launched in time: the device took its time to begin"],
  ];

  // ---- What there is -------------------------------------------------------------------------------------

  function spans(lane) {
    let at = 0;
    return lane.step_ns.map((step, place) => {
      at += step;
      return { start: at, end: at + lane.duration_ns[place], links: [], depth: 0, facts: [] };
    });
  }

  function callsOf(fields) {
    return spans(fields.calls).map((span, place) => {
      const [name, part] = fields.call_names[fields.calls.name[place]];
      const facts = [["host", part.replaceAll("_", " ")]];
      const label = name.replace(/(_v\d+|_ptsz|_ptds)+$/, "");
      return { ...span, depth: fields.calls.depth[place], style: CALL_STYLES[part] || "tl-call", title: name, label, facts };
    });
  }

  function operationsOf(fields, calls) {
    return spans(fields.operations).map((span, place) => {
      const lane = fields.operations;
      const [name, kind] = fields.operation_names[lane.name[place]];
      const [device, stream] = fields.rows[lane.row[place]];
      const isKernel = kind === "kernel" || kind === "graph";
      const facts = [[kind, fields.shapes[lane.shape[place]]], ["on", `device ${device}, stream ${stream}`]];
      const item = { ...span, row: lane.row[place], title: name, label: fields.labels[lane.name[place]], facts };
      item.style = isKernel ? fields.style : "tl-copy";
      const call = calls[lane.call[place]];
      if (call) {
        item.links.push(call);
        call.links.push(item);
      }
      return item;
    });
  }

  function pausesOf(fields) {
    const found = spans(fields.gaps).map((span, place) => {
      const [style, title, why] = GAPS[fields.gaps.kind[place]];
      return { ...span, style, title, label: time(span.end - span.start, 0), facts: [["why", why]] };
    });
    const edge = (start, end, title, why) => ({ start, end, links: [], depth: 0, style: "tl-edge", title, label: title, facts: [["why", why]] });
    if (fields.head_ns) found.unshift(edge(0, fields.head_ns, "head", "before the first work on the GPU"));
    if (fields.tail_ns) found.push(edge(fields.range_ns - fields.tail_ns, fields.range_ns, "tail", "after the last work on the GPU"));
    return found;
  }

  function requestOf(fields) {
    const calls = callsOf(fields);
    const work = operationsOf(fields, calls);
    const ranges = fields.ranges.map(([name, start, length]) => (
      { start, end: start + length, links: [], depth: 0, style: "tl-range", title: name, label: name, facts: [["NVTX range", "of the request"]] }
    ));
    const rows = Math.min(Math.max(fields.rows.length, 1), MOST_ROWS);
    const lanes = [{ kind: "NVTX", items: ranges }, { kind: "host", items: calls }];
    for (let row = 0; row < rows; row++) {
      lanes.push({ kind: "GPU", row, items: work.filter((one) => Math.min(one.row, rows - 1) === row) });
    }
    lanes.push({ kind: "gaps", items: pausesOf(fields) });
    for (const lane of lanes) lane.items.forEach((item, place) => Object.assign(item, { lane, place }));
    const end = work.reduce((last, one) => Math.max(last, one.end), fields.range_ns);
    return { name: fields.strategy, heading: fields.heading, range: fields.range_ns, end, lanes };
  }

  // Gives each lane its place below the ones before; returns the height of all.
  function layOut(requests) {
    let y = 0;
    for (const request of requests) {
      request.y = y;
      y += HEADING;
      for (const lane of request.lanes) {
        Object.assign(lane, { request, y, height: HEIGHTS[lane.kind] });
        y += lane.height + (lane.kind === "host" ? 12 : 4);
      }
      request.bottom = y;
      y += BETWEEN;
    }
    return y - BETWEEN + AXIS;
  }

  // ---- Where it is on the screen -------------------------------------------------------------------------

  function axisOf(width, view) {
    const perNs = Math.max(width - GUTTER - RIGHT, 1) / (view.to - view.from);
    return { perNs, x: (ns) => GUTTER + (ns - view.from) * perNs, ns: (x) => view.from + (x - GUTTER) / perNs };
  }

  // Place of the first item that starts after a time.
  function firstAfter(items, ns) {
    let low = 0;
    let high = items.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (items[middle].start > ns) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  // The item at a place of a lane, the innermost of nested ones; or the nearest within a few pixels.
  function itemAt(lane, ns, reach) {
    let best = null;
    let bestAway = reach;
    const last = Math.min(firstAfter(lane.items, ns + reach), lane.items.length);
    for (let place = Math.max(firstAfter(lane.items, ns - reach) - LOOK_BACK, 0); place < last; place++) {
      const item = lane.items[place];
      const away = Math.max(item.start - ns, ns - item.end, 0);
      if (away < bestAway || (away === bestAway && (!best || item.depth >= best.depth))) [best, bestAway] = [item, away];
    }
    return best;
  }

  // ---- Words ---------------------------------------------------------------------------------------------

  // In the unit that suits it.
  function time(ns, digits = 3) {
    if (Math.abs(ns) >= 1e6) return `${(ns / 1e6).toFixed(3)} ms`;
    return Math.abs(ns) >= 1e3 ? `${(ns / 1e3).toFixed(digits)} µs` : `${Math.round(ns)} ns`;
  }

  // In microseconds with every nanosecond, to be compared and searched for.
  function exact(ns) {
    return `${(ns / 1e3).toLocaleString("en", { minimumFractionDigits: 3, maximumFractionDigits: 3 })} µs`;
  }

  function tickStep(span, most) {
    for (let power = 1; ; power *= 10) {
      for (const factor of [1, 2, 5]) if (factor * power * most >= span) return factor * power;
    }
  }

  function tickWords(ns, step) {
    const [unit, name] = step >= 1e5 ? [1e6, "ms"] : [1e3, "µs"];
    const digits = Math.max(0, Math.ceil(-Math.log10(step / unit)));
    return `${(ns / unit).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${name}`;
  }

  function factsOf(item) {
    const rows = [["from", `${exact(item.start)} to ${exact(item.end)}`], ["lasts", exact(item.end - item.start)], ...item.facts];
    const isCall = item.lane.kind === "host";
    if (item.links.length === 1) {
      const [call, work] = isCall ? [item, item.links[0]] : [item.links[0], item];
      rows.push(isCall ? ["launched", work.title] : ["launched by", `${call.title} from ${exact(call.start)} to ${exact(call.end)}`]);
      rows.push(["queue delay", `${exact(work.start - call.end)}, from the call's end to the start on the GPU`]);
    } else if (item.links.length) {
      const last = item.links[item.links.length - 1];
      rows.push(["launched", `${item.links.length} operations, from ${exact(item.links[0].start)} to ${exact(last.end)}`]);
    }
    return rows;
  }

  return { GUTTER, RIGHT, HEADING, AXIS, LOOK_BACK, requestOf, layOut, axisOf, itemAt, firstAfter, time, tickStep, tickWords, factsOf };
})();
