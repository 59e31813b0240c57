// Elements whose text has less contrast against its ground than WCAG's 4.5, as [tag, ratio, text].
function luminance(colour) {
  const linear = (value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const [r, g, b] = colour.match(/[\d.]+/g).map((value) => linear(Number(value) / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function ratio(one, other) {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}
function ground(element) {
  for (; element; element = element.parentElement) {
    const colour = getComputedStyle(element).backgroundColor;
    if (!colour.endsWith(", 0)")) return colour;
  }
}
const low = [];
for (const element of document.querySelectorAll("body *")) {
  const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  if (!own || ["SCRIPT", "STYLE"].includes(element.tagName)) continue;
  const style = getComputedStyle(element);
  const colour = element instanceof SVGElement ? style.fill : style.color;
  const found = ratio(colour, ground(element));
  if (found < 4.5) low.push([element.tagName, found, element.textContent.trim()]);
}
return low;
