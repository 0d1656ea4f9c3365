# network-config version 2, block-style YAML, to one line per setting: WHO up | mtu N | address A/P | dhcp4 | ra | route TO VIA.
# A stack of (indent, key) gives each line its path; a list item may stand at the indent of its key.
function unquote(text) { gsub(/^[ "']+|[ "',\r]+$/, "", text); return text }
function path(   text, i) {
  text = ""
  for (i = 1; i <= depth; i++) text = text "/" key[i]
  sub(/^\/network\//, "/", text)
  return text
}
function value(text,   where, part, name, items, n, i) {
  where = path()
  if (where !~ /^\/ethernets\/[^\/]+\//) return
  split(where, part, "/"); name = part[3]
  if (!(name in known)) { known[name] = ++interfaces; order[interfaces] = name; who[name] = name }
  sub(/^\/ethernets\/[^\/]+\//, "", where)
  if (where == "match/macaddress") who[name] = tolower(unquote(text))
  else if (where == "dhcp4") dhcp[name] = unquote(text)
  else if (where == "dhcp6") dhcp6[name] = unquote(text)
  else if (where == "accept-ra") ra[name] = unquote(text)
  else if (where == "mtu") mtu[name] = unquote(text)
  else if (where == "gateway4" || where == "gateway6") { to[name, ++routes[name]] = "default"; via[name, routes[name]] = unquote(text) }
  else if (where == "routes/to") to[name, routes[name]] = unquote(text)
  else if (where == "routes/via") via[name, routes[name]] = unquote(text)
  else if (where == "addresses") {
    gsub(/\[|\]/, "", text)
    n = split(text, items, ",")
    for (i = 1; i <= n; i++) if (unquote(items[i]) != "") address[name, ++addresses[name]] = unquote(items[i])
  }
}
/^[ \t]*(#|$)/ || /^---/ { next }
{
  match($0, /^ */); indent = RLENGTH; line = substr($0, indent + 1); sub(/[ \t\r]+$/, "", line)
  while (line ~ /^-( |$)/) {
    while (depth > 0 && at[depth] > indent) depth--
    split(path(), part, "/")
    if (path() ~ /\/routes$/) ++routes[part[3]]
    sub(/^- */, "", line); indent += 2
    if (line != "" && line !~ /^["']?[A-Za-z0-9_.-]+["']?:( |$)/) { value(line); line = "" }
  }
  if (line == "") next
  while (depth > 0 && at[depth] >= indent) depth--
  colon = match(line, /:( |$)/)
  if (!colon) next
  at[++depth] = indent; key[depth] = unquote(substr(line, 1, colon - 1))
  rest = substr(line, colon + 1); sub(/^ +/, "", rest)
  value(rest)
}
END {
  for (i = 1; i <= interfaces; i++) {
    name = order[i]
    if (mtu[name] != "") print who[name], "mtu", mtu[name]
    for (j = 1; j <= addresses[name]; j++) print who[name], "address", address[name, j]
    print who[name], "up"
    if (dhcp[name] == "true") print who[name], "dhcp4"
    if (ra[name] == "true" && dhcp6[name] != "true") print who[name], "ra"
    for (j = 1; j <= routes[name]; j++) if (via[name, j] != "") print who[name], "route", (to[name, j] == "0.0.0.0/0" ? "default" : to[name, j]), via[name, j]
  }
}
