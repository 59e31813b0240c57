"use strict";
// Paints the canvases of a timeline. Times are nanoseconds, places are pixels of the page.
const launchgapTimelineDraw = (function () {
  const { GUTTER, RIGHT, HEADING, AXIS, LOOK_BACK, axisOf, firstAfter, time, tickStep, tickWords } = launchgapTimelineModel;
  const THINNEST = 0.5; // px; thicker, a crowd of short kernels would look like a busy GPU
  const FEWEST_LETTERS = 6; // of a name that is worth to be begun

  // Colours by class and fonts, by the styles that hold now.
  function lookOf(root) {
    const style = getComputedStyle(root);
    const probe = document.createElement("i");
    const known = new Map();
    probe.hidden = true;
    root.append(probe);
    const colour = (name) => {
      if (!known.has(name)) {
        probe.className = name;
        known.set(name, getComputedStyle(probe).getPropertyValue("--tl").trim());
      }
      return known.get(name);
    };
    const named = ["ink", "muted", "grid", "paper", "raised"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]);
    const fonts = { small: `11px ${style.fontFamily}`, bold: `600 13px ${style.fontFamily}` };
    return { ...Object.fromEntries(named), ...fonts, colour, forget: () => probe.remove() };
  }

  function onColour(colour, look) {
    const hex = /^#(..)(..)(..)$/.exec(colour.trim());
    if (!hex) return look.ink;
    const [r, g, b] = hex.slice(1).map((part) => (parseInt(part, 16) / 255) ** 2.2);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.25 ? "#14181c" : "#ffffff";
  }

  function cut(ctx, text, width) {
    const wanted = ctx.measureText(text).width;
    if (wanted <= width) return text;
    const letters = Math.floor((text.length * width) / wanted) - 2;
    return letters < FEWEST_LETTERS ? "" : `${text.slice(0, letters)}…`;
  }

  function paintTicks(ctx, scene, axis) {
    const step = tickStep(scene.view.to - scene.view.from, Math.max((scene.width - GUTTER - RIGHT) / 95, 2));
    const bottom = scene.height - AXIS;
    ctx.font = scene.look.small;
    ctx.textAlign = "center";
    for (let ns = Math.ceil(scene.view.from / step) * step; ns <= scene.view.to; ns += step) {
      const x = Math.round(axis.x(ns)) + 0.5;
      ctx.fillStyle = scene.look.grid;
      ctx.fillRect(x - 0.5, 0, 1, bottom);
      const words = tickWords(ns, step);
      const half = ctx.measureText(words).width / 2;
      ctx.fillStyle = scene.look.muted;
      ctx.fillText(words, Math.min(Math.max(x, GUTTER + half), scene.width - half), bottom + 14);
    }
    ctx.textAlign = "left";
  }

  function box(item, lane, axis) {
    const x = axis.x(item.start);
    const inset = item.depth ? Math.min(5 + 4 * item.depth, lane.height - 5) : 0;
    const half = item.style === "tl-device" || item.style === "tl-edge" ? lane.height / 4 : 0;
    return { x, y: lane.y + inset + half, width: Math.max(axis.x(item.end) - x, THINNEST), height: lane.height - inset - 2 * half };
  }

  function paintLane(ctx, scene, lane, axis) {
    const { items } = lane;
    let until = -Infinity;
    let style = "";
    const last = firstAfter(items, scene.view.to);
    for (let place = Math.max(firstAfter(items, scene.view.from) - LOOK_BACK, 0); place < last; place++) {
      const item = items[place];
      if (item.end < scene.view.from) continue;
      const { x, y, width, height } = box(item, lane, axis);
      // Of bars that share a pixel one is enough.
      if (item.style === style && x + width <= until && !item.depth) continue;
      [style, until] = [item.style, x + width];
      const colour = scene.look.colour(item.style);
      ctx.fillStyle = colour;
      const left = Math.max(x, GUTTER - 2);
      const shown = Math.min(x + width, scene.width) - left;
      // A hairline between neighbours, where there is room for one.
      ctx.fillRect(left, y, shown > 3 ? shown - 0.5 : shown, height);
      const words = shown > 22 && height >= 11 && !item.depth ? cut(ctx, item.label, shown - 8) : "";
      if (words) {
        ctx.fillStyle = onColour(colour, scene.look);
        ctx.fillText(words, left + 4, lane.y + lane.height / 2 + 4);
      }
    }
  }

  function paintLink(ctx, scene, call, work, axis) {
    const from = axis.x(call.end);
    const to = axis.x(work.start);
    const top = call.lane.y + call.lane.height;
    const bottom = work.lane.y;
    ctx.beginPath();
    ctx.moveTo(from, top);
    ctx.bezierCurveTo(from, bottom, to, top, to, bottom);
    ctx.stroke();
  }

  function outline(ctx, item, axis, width) {
    const at = box(item, item.lane, axis);
    ctx.lineWidth = width;
    ctx.strokeRect(at.x - width / 2, at.y - width / 2, at.width + width, at.height + width);
  }

  // The item that is pointed at or picked, what it is linked with, and a line between them.
  function paintFocus(ctx, scene, item, axis) {
    ctx.strokeStyle = scene.look.ink;
    const isCall = item.lane.kind === "host";
    const shown = item.links.length > 40 ? [item.links[0], item.links[item.links.length - 1]] : item.links;
    ctx.lineWidth = 1.25;
    for (const other of shown) paintLink(ctx, scene, isCall ? item : other, isCall ? other : item, axis);
    for (const other of shown) outline(ctx, other, axis, 1);
    outline(ctx, item, axis, 2);
  }

  function paintRequest(ctx, scene, request, axis) {
    ctx.fillStyle = scene.look.ink;
    ctx.font = scene.look.bold;
    ctx.fillText(request.name, GUTTER, request.y + 17);
    const after = GUTTER + ctx.measureText(request.name).width + 8;
    ctx.font = scene.look.small;
    ctx.fillStyle = scene.look.muted;
    ctx.fillText(cut(ctx, request.heading, scene.width - after), after, request.y + 17);
    for (const lane of request.lanes) {
      const isHere = scene.lane === lane;
      ctx.font = isHere ? scene.look.bold : scene.look.small;
      ctx.fillStyle = isHere ? scene.look.ink : scene.look.muted;
      if (!lane.row) ctx.fillText(lane.kind, 2, lane.y + lane.height / 2 + 4);
      if (isHere) ctx.fillRect(GUTTER - 5, lane.y, 2, lane.height);
    }
    ctx.save();
    ctx.beginPath();
    ctx.rect(GUTTER - 2, request.y, scene.width - GUTTER + 2, scene.height);
    ctx.clip();
    ctx.font = scene.look.small;
    for (const lane of request.lanes) paintLane(ctx, scene, lane, axis);
    ctx.fillStyle = scene.look.muted;
    if (scene.view.from >= request.end) {
      ctx.fillText(`ended at ${time(request.range)}`, GUTTER + 2, request.lanes[1].y + 14);
    }
    ctx.fillRect(Math.round(axis.x(request.range)), request.y + HEADING - 4, 1, request.bottom - request.y - HEADING);
    ctx.restore();
  }

  function clear(canvas, width, height) {
    const ratio = window.devicePixelRatio || 1;
    const size = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
    const ctx = canvas.getContext("2d");
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, width, height);
    return ctx;
  }

  function paint(canvas, scene) {
    const ctx = clear(canvas, scene.width, scene.height);
    const axis = axisOf(scene.width, scene.view);
    paintTicks(ctx, scene, axis);
    for (const request of scene.requests) paintRequest(ctx, scene, request, axis);
    ctx.save();
    ctx.beginPath();
    ctx.rect(GUTTER - 3, 0, scene.width - GUTTER + 3, scene.height);
    ctx.clip();
    for (const item of new Set(scene.focus)) paintFocus(ctx, scene, item, axis);
    ctx.restore();
  }

  // The GPU's work of the whole, and a window over what the timeline shows of it.
  function paintMap(canvas, scene, height) {
    const ctx = clear(canvas, scene.width, height);
    const whole = { ...scene, view: { from: 0, to: scene.whole } };
    const axis = axisOf(scene.width, whole.view);
    const row = (height - 4) / scene.requests.length;
    ctx.fillStyle = scene.look.raised;
    ctx.fillRect(GUTTER, 0, scene.width - GUTTER - RIGHT, height);
    scene.requests.forEach((request, place) => {
      for (const lane of request.lanes) {
        if (lane.kind !== "GPU") continue;
        const squeezed = { items: lane.items, y: 3 + place * row, height: row - 2 };
        paintLane(ctx, whole, squeezed, axis);
      }
    });
    const [left, right] = [axis.x(scene.view.from), axis.x(scene.view.to)];
    ctx.fillStyle = scene.look.paper;
    ctx.globalAlpha = 0.72;
    ctx.fillRect(GUTTER, 0, left - GUTTER, height);
    ctx.fillRect(right, 0, scene.width - RIGHT - right, height);
    ctx.globalAlpha = 1;
    ctx.strokeStyle = scene.look.muted;
    ctx.lineWidth = 1;
    ctx.strokeRect(Math.round(left) + 0.5, 0.5, Math.max(Math.round(right - left) - 1, 2), height - 1);
  }

  return { lookOf, paint, paintMap };
})();
