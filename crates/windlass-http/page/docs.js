// Shows the description of the interface.
"use strict";

const element = (name, text, className) => {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
};

const typeOf = (schema) => {
  if (!schema || typeof schema !== "object") return "any";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(" | ");
  if (schema.anyOf || schema.oneOf) return (schema.anyOf || schema.oneOf).map(typeOf).join(" | ");
  if (schema.type === "array") return `${typeOf(schema.items)}[]`;
  return Array.isArray(schema.type) ? schema.type.join(" | ") : schema.type || "any";
};

const rows = (operation) => {
  const list = (operation.parameters || []).map((one) => ({
    name: one.name, place: one.in, type: typeOf(one.schema), needed: one.required,
    about: one.description || (one.schema && one.schema.description) || "",
  }));
  const body = operation.requestBody && operation.requestBody.content["application/json"].schema;
  for (const [name, schema] of Object.entries((body && body.properties) || {})) {
    list.push({
      name, place: "body", type: typeOf(schema), needed: (body.required || []).includes(name),
      about: schema.description || "",
    });
  }
  return list;
};

const show = (path, method, operation) => {
  const details = element("details");
  details.id = operation.operationId;
  const summary = element("summary");
  summary.append(element("b", method.toUpperCase()), element("code", path), element("span", operation.summary));
  details.append(summary);
  details.append(element("p", `Operation ${operation.operationId}; scope ${operation["x-scope"]}`, "scope"));
  const table = element("table");
  const head = element("tr");
  for (const title of ["parameter", "in", "type", "meaning"]) head.append(element("th", title));
  table.append(head);
  for (const row of rows(operation)) {
    const line = element("tr");
    line.append(element("td", row.needed ? `${row.name} *` : row.name), element("td", row.place));
    line.append(element("td", row.type), element("td", row.about));
    table.append(line);
  }
  details.append(table);
  const success = Object.entries(operation.responses).find(([status]) => status.startsWith("2"));
  if (success) {
    const content = success[1].content || {};
    const json = content["application/json"];
    const reply = json ? typeOf(json.schema) : Object.keys(content).join(", ");
    details.append(element("p", `Reply ${success[0]}: ${reply}`));
  }
  return details;
};

fetch("/openapi.json").then((reply) => reply.json()).then((api) => {
  document.getElementById("about").textContent = `${api.info.title} ${api.info.version}: ${api.info.description}`;
  const main = document.getElementById("operations");
  main.textContent = "";
  const groups = new Map();
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const group = operation.tags[0];
      if (!groups.has(group)) groups.set(group, element("section"));
      groups.get(group).append(show(path, method, operation));
    }
  }
  for (const [name, section] of groups) {
    section.prepend(element("h2", name));
    main.append(section);
  }
  document.getElementById("filter").addEventListener("input", (event) => {
    const wanted = event.target.value.toLowerCase();
    for (const details of main.querySelectorAll("details")) {
      details.hidden = !details.textContent.toLowerCase().includes(wanted);
    }
  });
});
