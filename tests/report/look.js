// Looks at the page as a reader would: what sticks out, what lies on what, what is too pale to read.
(() => {
  const found = [];
  const name = (e) => `${e.tagName.toLowerCase()}${e.id ? "#" + e.id : ""} "${(e.textContent || "").trim().slice(0, 40)}"`;
  const wide = document.documentElement.clientWidth;
  const seen = (e) => {
    const style = getComputedStyle(e);
    const box = e.getBoundingClientRect();
    return style.visibility !== "hidden" && style.display !== "none" && box.width > 0.5 && box.height > 0.5;
  };
  const meet = (a, b, slack) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > slack && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > slack;

  if (document.documentElement.scrollWidth > wide) found.push(`the page is ${document.documentElement.scrollWidth} wide in ${wide}`);
  for (const e of document.querySelectorAll("body *")) {
    if (!seen(e) || e.closest(".scroll table, pre, .skip, .quiet")) continue;
    const box = e.getBoundingClientRect();
    if (box.right > wide + 0.5 || box.left < -0.5) found.push(`sticks out of the page: ${name(e)}`);
  }

  // neighbours on the page do not lie on each other
  for (const parent of document.querySelectorAll("body, main, header, section, figure, .tiles, .gallery, .groups, .group, dl, dl > div, ul, details[open]")) {
    const children = [...parent.children].filter((e) => seen(e) && getComputedStyle(e).position !== "absolute");
    for (let i = 0; i < children.length; i++)
      for (let j = i + 1; j < children.length; j++)
        if (meet(children[i].getBoundingClientRect(), children[j].getBoundingClientRect(), 0.5))
          found.push(`${name(children[i])} lies on ${name(children[j])}`);
  }

  // labels of a picture lie inside it, and not on each other
  for (const svg of document.querySelectorAll("svg.picture")) {
    const frame = svg.getBoundingClientRect();
    const labels = [...svg.querySelectorAll("text")].filter(seen);
    const boxes = labels.map((e) => e.getBoundingClientRect());
    boxes.forEach((box, i) => {
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
        found.push(`label outside its picture (${svg.closest("figure").id}): ${name(labels[i])}`);
      for (let j = i + 1; j < boxes.length; j++) {
        // the boxes of text are taller than its letters by about a third
        const trim = (b) => ({ left: b.left, right: b.right, top: b.top + b.height * 0.18, bottom: b.bottom - b.height * 0.18 });
        if (meet(trim(box), trim(boxes[j]), 0.5)) found.push(`labels overlap (${svg.closest("figure").id}): ${name(labels[i])} and ${name(labels[j])}`);
      }
    });
  }

  // contrast of text, WCAG 2 AA: 4.5
  const rgb = (text) => (text.match(/[\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => {
    const part = (v) => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const colour = rgb(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] > 0.99) return colour;
    }
    return [255, 255, 255];
  };
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !seen(e) || e.closest(".skip, .quiet")) continue;
    const inPicture = e.closest("svg");
    const style = getComputedStyle(e);
    if (inPicture && /on-(dark|light|pale)/.test(e.getAttribute("style") || "")) continue; // stands on a bar
    const [a, b] = [light(rgb(inPicture ? style.fill : style.color)), light(ground(inPicture ? inPicture.parentElement : e))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const least = inPicture && /--ideal/.test(e.getAttribute("style") || "") ? 3 : 4.5;
    if (contrast < least) found.push(`contrast ${contrast.toFixed(2)}: ${name(e)}`);
  }

  // every picture and table can be read without seeing it
  for (const svg of document.querySelectorAll("svg")) if (!(svg.getAttribute("aria-label") || "").length) found.push("a picture without words");
  for (const region of document.querySelectorAll("[role=region]")) if (!region.getAttribute("aria-label")) found.push("a region without a name");
  for (const table of document.querySelectorAll("table")) if (!table.querySelector("thead th[scope=col]")) found.push("a table without headings");
  return found;
})();
