"use strict";
// Moves a reader through a timeline: buttons, wheel, pointers, keys. timeline_draw.js paints it.
(function () {
  const { requestOf, layOut, axisOf, itemAt, firstAfter, time, factsOf } = launchgapTimelineModel;
  const { lookOf, paint, paintMap } = launchgapTimelineDraw;
  const SHORTEST_NS = 500; // the closest view: less than any kernel
  const MAP_HEIGHT = 26;
  const EDGE = 0.02; // of the span, left free on the right of a request that is shown whole
  const calm = matchMedia("(prefers-reduced-motion: reduce)");

  function element(tag, text, name) {
    const made = document.createElement(tag);
    if (name) made.className = name;
    made.textContent = text;
    return made;
  }

  class Timeline {
    constructor(root) {
      this.root = root;
      this.requests = JSON.parse(root.dataset.timeline).map(requestOf);
      this.lanes = this.requests.flatMap((one) => one.lanes);
      this.height = layOut(this.requests);
      this.whole = Math.max(1, ...this.requests.map((one) => one.end));
      this.view = { from: 0, to: this.whole };
      this.goal = this.view;
      this.lane = null;
      this.picked = null;
      this.over = null;
      this.pointers = new Map();
      for (const name of ["stage", "canvas", "map", "tip", "details", "view"]) this[`${name}Box`] = root.querySelector(`.tl-${name}`);
      this.look = lookOf(root);
      this.listen();
      this.canvasBox.style.height = `${this.height}px`;
      for (const box of root.querySelectorAll(".tl-live")) box.hidden = false;
      root.classList.add("alive");
      this.tell(null);
      this.show(this.goal, true);
    }

    // ---- The view ------------------------------------------------------------------------------------------

    get width() { return this.stageBox.clientWidth; }
    get span() { return this.goal.to - this.goal.from; }

    // Shows a stretch of time, kept inside the whole.
    show(wanted, atOnce) {
      const span = Math.min(Math.max(wanted.to - wanted.from, SHORTEST_NS), this.whole);
      const middle = (wanted.from + wanted.to) / 2;
      const from = Math.min(Math.max(middle - span / 2, 0), this.whole - span);
      this.goal = { from, to: from + span };
      if (atOnce || calm.matches) this.view = this.goal;
      this.root.dataset.view = `${Math.round(from)} ${Math.round(from + span)}`;
      this.viewBox.textContent = `${from ? time(Math.round(from)) : 0} to ${time(Math.round(from + span))}`;
      this.draw();
    }

    zoom(factor, around, atOnce) {
      const at = around === undefined ? (this.goal.from + this.goal.to) / 2 : around;
      // A limit must not move what the pointer is on.
      const span = Math.min(Math.max(this.span * factor, SHORTEST_NS), this.whole);
      const from = at - ((at - this.goal.from) * span) / this.span;
      this.show({ from, to: from + span }, atOnce);
    }

    pan(byNs, atOnce) { this.show({ from: this.goal.from + byNs, to: this.goal.to + byNs }, atOnce); }

    fit(place) {
      const request = this.requests[place];
      this.show({ from: 0, to: request ? Math.min(request.end * (1 + EDGE), this.whole) : this.whole });
    }

    draw() {
      if (!this.waiting) this.waiting = requestAnimationFrame(() => this.frame());
    }

    frame() {
      this.waiting = 0;
      const away = Math.abs(this.goal.from - this.view.from) + Math.abs(this.goal.to - this.view.to);
      if (away > 0 && away < (this.goal.to - this.goal.from) / 500) this.view = this.goal;
      else if (away) {
        const nearer = (name) => this.view[name] + (this.goal[name] - this.view[name]) * 0.4;
        this.view = { from: nearer("from"), to: nearer("to") };
      }
      if (!this.width) return; // folded away; the observer of its size will draw it
      const focus = [this.picked, this.over].filter(Boolean);
      const { width, height, view, whole, requests, look, lane } = this;
      const scene = { width, height, view, whole, requests, look, lane, focus };
      paint(this.canvasBox, scene);
      paintMap(this.mapBox, scene, MAP_HEIGHT);
      if (this.view !== this.goal) this.draw();
    }

    relook() {
      this.look.forget();
      this.look = lookOf(this.root);
      this.draw();
    }

    // ---- Picking -------------------------------------------------------------------------------------------

    hit(event) {
      const area = this.canvasBox.getBoundingClientRect();
      const [x, y] = [event.clientX - area.left, event.clientY - area.top];
      const lane = this.lanes.find((one) => y >= one.y - 2 && y < one.y + one.height + 2);
      if (!lane) return null;
      const axis = axisOf(this.width, this.view);
      return itemAt(lane, axis.ns(x), (event.pointerType === "touch" ? 12 : 4) / axis.perNs);
    }

    pick(item) {
      this.picked = item;
      if (item) {
        this.lane = item.lane;
        const isSeen = item.end > this.goal.from && item.start < this.goal.to;
        if (!isSeen) this.pan((item.start + item.end) / 2 - (this.goal.from + this.goal.to) / 2);
      }
      this.tell(item);
      this.draw();
    }

    tell(item) {
      if (!item) {
        this.detailsBox.replaceChildren(element("p", "Nothing is picked. Click a bar, or press Enter on the timeline, to see what it is."));
        return;
      }
      const list = document.createElement("dl");
      for (const [term, words] of factsOf(item)) list.append(element("dt", term), element("dd", words));
      const title = element("p", "", "tl-title");
      title.append(`${item.lane.request.name}: `, element("code", item.title || "(unnamed)"));
      this.detailsBox.replaceChildren(title, list);
    }

    pickNear(lane, ns) {
      const after = firstAfter(lane.items, ns);
      const near = lane.items.slice(Math.max(after - 1, 0), after + 1);
      const away = (one) => Math.max(one.start - ns, ns - one.end, 0);
      if (near.length) this.pick(near.reduce((best, one) => (away(one) < away(best) ? one : best)));
    }

    choose(step) {
      const here = this.lanes.indexOf(this.lane);
      const place = here < 0 ? (step > 0 ? 0 : this.lanes.length - 1) : here + step;
      const lane = this.lanes[Math.min(Math.max(place, 0), this.lanes.length - 1)];
      this.lane = lane;
      if (this.picked) this.pickNear(lane, (this.picked.start + this.picked.end) / 2);
      else {
        const words = `${lane.request.name}, ${lane.kind}: ${lane.items.length} to pick from. Enter picks the one nearest to the middle.`;
        this.detailsBox.replaceChildren(element("p", words));
      }
      this.draw();
    }

    step(by) {
      const { lane, place } = this.picked;
      this.pick(lane.items[Math.min(Math.max(place + by, 0), lane.items.length - 1)]);
    }

    enter() {
      if (this.picked) {
        if (this.picked.links.length) this.pick(this.picked.links[0]);
        return;
      }
      const lane = this.lane || this.lanes.find((one) => one.kind === "GPU");
      this.pickNear(lane, (this.goal.from + this.goal.to) / 2);
    }

    point(event) {
      const item = event && this.hit(event);
      this.stageBox.classList.toggle("over", Boolean(item));
      this.tipBox.hidden = !item;
      if (item) {
        const words = `${time(item.start)} · lasts ${time(item.end - item.start)}`;
        this.tipBox.replaceChildren(element("b", (item.lane.kind === "gaps" ? item.title : item.label) || "(unnamed)"), words);
        const area = this.stageBox.getBoundingClientRect();
        const x = Math.min(event.clientX - area.left + 12, area.width - this.tipBox.offsetWidth - 4);
        const below = event.clientY - area.top + 16;
        const isLow = below + this.tipBox.offsetHeight > area.height;
        const y = isLow ? event.clientY - area.top - this.tipBox.offsetHeight - 8 : below;
        this.tipBox.style.transform = `translate(${Math.max(x, 0)}px, ${Math.max(y, 0)}px)`;
      }
      if (item !== this.over) {
        this.over = item;
        this.draw();
      }
    }

    // ---- Input ---------------------------------------------------------------------------------------------

    key(event) {
      if (event.ctrlKey || event.altKey || event.metaKey) return;
      const { picked } = this;
      const around = picked ? (picked.start + picked.end) / 2 : undefined;
      const does = {
        "+": () => this.zoom(0.5, around), "=": () => this.zoom(0.5, around),
        "-": () => this.zoom(2, around), _: () => this.zoom(2, around),
        0: () => this.fit(),
        ArrowLeft: () => (picked ? this.step(-1) : this.pan(-this.span / 5)),
        ArrowRight: () => (picked ? this.step(1) : this.pan(this.span / 5)),
        Home: () => (picked ? this.step(-Infinity) : this.pan(-this.whole)),
        End: () => (picked ? this.step(Infinity) : this.pan(this.whole)),
        ArrowUp: () => this.choose(-1), ArrowDown: () => this.choose(1),
        Enter: () => this.enter(), " ": () => this.enter(), Escape: () => this.pick(null),
      }[event.key];
      if (!does) return;
      event.preventDefault();
      does();
    }

    wheel(event) {
      if (event.ctrlKey || event.metaKey) {
        const area = this.canvasBox.getBoundingClientRect();
        const at = axisOf(this.width, this.view).ns(event.clientX - area.left);
        const turn = Math.min(Math.max(event.deltaY, -40), 40);
        this.zoom(Math.exp(turn * 0.01), Math.min(Math.max(at, this.goal.from), this.goal.to), true);
      } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        this.pan((event.deltaX || event.deltaY) / axisOf(this.width, this.view).perNs, true);
      } else return; // the page scrolls
      event.preventDefault();
    }

    down(event) {
      if (event.button) return;
      this.stageBox.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, event.clientX);
      this.moved = this.pointers.size > 1 ? Infinity : 0;
    }

    move(event) {
      if (!this.pointers.has(event.pointerId)) {
        if (event.pointerType !== "touch") this.point(event);
        return;
      }
      const before = [...this.pointers.values()];
      const by = event.clientX - this.pointers.get(event.pointerId);
      this.moved += Math.abs(by);
      if (this.moved < 4) return; // a click with an unsteady hand
      this.pointers.set(event.pointerId, event.clientX);
      this.stageBox.classList.add("dragging");
      this.point(null);
      const axis = axisOf(this.width, this.view);
      if (before.length === 1) this.pan(-by / axis.perNs, true);
      else this.pinch(before, [...this.pointers.values()], axis);
    }

    // Keeps the two times that were under two fingers under them.
    pinch(before, after, axis) {
      const left = this.canvasBox.getBoundingClientRect().left;
      const apart = Math.max(Math.abs(after[0] - after[1]), 10);
      const factor = Math.max(Math.abs(before[0] - before[1]), 10) / apart;
      const middle = axis.ns((after[0] + after[1]) / 2 - left);
      this.zoom(factor, middle, true);
    }

    up(event) {
      if (!this.pointers.delete(event.pointerId)) return;
      this.stageBox.classList.remove("dragging");
      if (this.moved < 4 && event.type === "pointerup") this.pick(this.hit(event));
    }

    toMap(event) {
      if (!(event.buttons & 1)) return;
      const axis = axisOf(this.mapBox.clientWidth, { from: 0, to: this.whole });
      const at = axis.ns(event.clientX - this.mapBox.getBoundingClientRect().left);
      this.show({ from: at - this.span / 2, to: at + this.span / 2 }, true);
    }

    press(button) {
      const does = { in: () => this.zoom(0.5), out: () => this.zoom(2), fit: () => this.fit(), request: () => this.fit(Number(button.dataset.request)) };
      does[button.dataset.do]();
    }

    listen() {
      const on = (box, names, does, options) => names.split(" ").forEach((name) => box.addEventListener(name, does, options));
      for (const button of this.root.querySelectorAll(".tl-tools button")) on(button, "click", () => this.press(button));
      on(this.stageBox, "keydown", (event) => this.key(event));
      on(this.stageBox, "wheel", (event) => this.wheel(event), { passive: false });
      on(this.stageBox, "pointerdown", (event) => this.down(event));
      on(this.stageBox, "pointermove", (event) => this.move(event));
      on(this.stageBox, "pointerup pointercancel", (event) => this.up(event));
      on(this.stageBox, "pointerleave", () => this.point(null));
      on(this.stageBox, "dblclick", (event) => {
        const item = this.hit(event);
        if (item) this.show({ from: item.start - 4 * (item.end - item.start), to: item.end + 4 * (item.end - item.start) });
      });
      on(this.mapBox, "pointerdown", (event) => this.mapBox.setPointerCapture(event.pointerId));
      on(this.mapBox, "pointerdown pointermove", (event) => this.toMap(event));
      new ResizeObserver(() => this.draw()).observe(this.stageBox);
      on(matchMedia("(prefers-color-scheme: dark)"), "change", () => this.relook());
      const attributes = { attributes: true, attributeFilter: ["class", "style", "data-theme"] };
      for (const box of [document.documentElement, document.body]) new MutationObserver(() => this.relook()).observe(box, attributes);
    }
  }

  for (const root of document.querySelectorAll(".timeline[data-timeline]")) new Timeline(root);
})();
