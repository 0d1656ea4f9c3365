//! What stands in a match's place: `$1`, `${1}`, `$name`, `${name}` and `$$` of Go's, where a name is as long as it can be (`$1x` is the
//! group `1x`, which there is not, so nothing).

/// Of a replacement.
pub(super) enum Part<'a> {
    Text(&'a str),
    /// The first of these that took part in the match; 0 is the whole.
    Groups(Vec<usize>),
}

/// `names`: of the groups, from 1 on. `Err`: what is not served.
pub(super) fn parts<'a>(replacement: &'a str, names: &[Option<String>]) -> Result<Vec<Part<'a>>, String> {
    let mut parts = Vec::new();
    let mut rest = replacement;
    while let Some((before, after)) = rest.split_once('$') {
        parts.push(Part::Text(before));
        rest = after;
        if let Some(after) = after.strip_prefix('$') {
            parts.push(Part::Text("$"));
            rest = after;
            continue;
        }
        match reference(after)? {
            Some((name, after)) => {
                rest = after;
                parts.push(Part::Groups(groups(name, names)));
            }
            None => parts.push(Part::Text("$")),
        }
    }
    parts.push(Part::Text(rest));
    Ok(parts)
}

/// The name behind a `$`, and what is behind it; `None`: the `$` is a text.
fn reference(text: &str) -> Result<Option<(&str, &str)>, String> {
    let in_braces = text.strip_prefix('{');
    let text = in_braces.unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, after) = text.split_at(end);
    // Which of these are letters differs between tables; no group has such a name.
    if after.starts_with(|c: char| !c.is_ascii()) {
        return Err("a character that is not ASCII right behind a $ and its name".to_owned());
    }
    if name.is_empty() {
        return Ok(None);
    }
    Ok(match in_braces {
        Some(_) => after.strip_prefix('}').map(|after| (name, after)),
        None => Some((name, after)),
    })
}

/// A number of up to nine digits without superfluous zeros is one, everything else a name.
fn groups(name: &str, names: &[Option<String>]) -> Vec<usize> {
    let is_number =
        name.len() < 10 && name.bytes().all(|byte| byte.is_ascii_digit()) && (name == "0" || !name.starts_with('0'));
    if is_number {
        return name.parse::<usize>().into_iter().filter(|group| *group <= names.len()).collect();
    }
    (1..).zip(names).filter(|(_, given)| given.as_deref() == Some(name)).map(|(group, _)| group).collect()
}
