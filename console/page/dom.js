// Elements, made without markup: whatever comes from the cluster becomes text, and nothing else.

const kSvg = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) {
      node.addEventListener(name.slice(2), value);
    } else {
      node.setAttribute(name, value === true ? "" : String(value));
    }
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(kSvg, name), attributes, children);
}

// Replaces what is in a node. What has the focus keeps it, where the new contents have its like.
export function show(node, ...children) {
  const focused = node.contains(document.activeElement) ? document.activeElement : null;
  const key = focused?.dataset?.key;
  const open = new Set([...node.querySelectorAll("details[open]")].map((one) => one.dataset.key));
  node.replaceChildren(...children.flat(Infinity).filter(Boolean));
  for (const one of node.querySelectorAll("details")) if (open.has(one.dataset.key)) one.open = true;
  if (key) node.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
}

// Shapes, so that nobody needs colours to tell states apart.
const kShapes = {
  check: "M4 12l5 5L20 6",
  warning: "M12 3L22 21H2zM12 10v5M12 17.5v1",
  cross: "M5 5l14 14M19 5L5 19",
  question: "M8 8a4 4 0 1 1 5.5 3.7C12.4 12.2 12 13 12 14.5M12 18v1",
  arrow: "M12 4v12M6 11l6 6 6-6M5 21h14",
  full: "M5 4h14v16H5zM8 8h8M8 12h8M8 16h8",
  dash: "M4 12h16",
  plus: "M4 12h16M12 4v16",
  broken: "M4 5h16v5l-5 3 3 6H4z",
};

export function shape(name) {
  return svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true", focusable: "false" },
    svg("path", {
      d: kShapes[name] ?? kShapes.question, fill: "none", stroke: "currentColor",
      "stroke-width": 3, "stroke-linecap": "round", "stroke-linejoin": "round",
    }));
}
