//! Circles of imports between the files of one package.
//!
//! An arrow goes from a file to the file that defines what it names, through any `pub use` on the way. A folder and its own
//! `mod.rs` are one: what a file takes from the `mod.rs` of a folder that it stands in is no arrow.

use super::source;
use anyhow::Result;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

/// A module's path below its crate; the root's is empty.
type Module = Vec<String>;

/// What one file names.
#[derive(Debug, Default)]
struct Text {
    uses: Vec<Use>,
    exports: Vec<Use>,
    paths: Vec<Vec<String>>,
}

/// One leaf of a `use`.
#[derive(Debug)]
struct Use {
    path: Vec<String>,
    name: String,
}

pub(super) struct Files(BTreeMap<Module, Text>);

impl Files {
    /// Every file below `folder`, without tests.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let files = source::files(folder)?;
        let below = |path: &Path| path.strip_prefix(folder).map(|name| name.display().to_string());
        let named: BTreeMap<String, &str> =
            files.iter().map(|(path, text)| Ok((below(path)?, text.as_str()))).collect::<Result<_>>()?;
        Ok(Self::of(named.iter().map(|(name, text)| (name.as_str(), *text))))
    }

    pub(super) fn of<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let modules = files.into_iter().map(|(name, text)| (module(name), parse(text)));
        Self(modules.filter(|(module, _)| !module.iter().any(|part| part == "tests")).collect())
    }

    /// Each circle, the largest first: its modules.
    pub(super) fn circles(&self) -> Vec<Vec<String>> {
        let arrows: BTreeMap<&Module, BTreeSet<Module>> = self.0.keys().map(|file| (file, self.arrows(file))).collect();
        let reached: BTreeMap<&Module, BTreeSet<&Module>> =
            arrows.keys().map(|file| (*file, reached(file, &arrows))).collect();
        let mut circles = BTreeSet::new();
        for (file, there) in &reached {
            let circle: Vec<String> =
                there.iter().filter(|other| reached[*other].contains(file)).map(|other| other.join("/")).collect();
            if circle.len() > 1 {
                circles.insert((usize::MAX - circle.len(), circle));
            }
        }
        circles.into_iter().map(|(_, circle)| circle).collect()
    }

    fn arrows(&self, file: &Module) -> BTreeSet<Module> {
        let text = &self.0[file];
        let named = text.uses.iter().chain(&text.exports).map(|one| one.path.clone());
        let paths = named.chain(text.paths.iter().map(|path| self.unfolded(text, path)));
        let there = paths.filter_map(|path| self.definer(self.absolute(file, &path)?));
        there.filter(|to| !file.starts_with(to)).collect()
    }

    /// A path whose first word was imported.
    fn unfolded(&self, text: &Text, path: &[String]) -> Vec<String> {
        match text.uses.iter().find(|one| one.name == path[0]) {
            Some(one) => one.path.iter().chain(&path[1..]).cloned().collect(),
            None => path.to_vec(),
        }
    }

    /// From the crate's root; `None`: it is of another crate, or of the language.
    fn absolute(&self, file: &Module, path: &[String]) -> Option<Module> {
        let ups = path.iter().take_while(|word| *word == "super").count();
        match path[0].as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some(file.iter().chain(&path[1..]).cloned().collect()),
            "super" => Some(file[..file.len().checked_sub(ups)?].iter().chain(&path[ups..]).cloned().collect()),
            child => {
                let below: Module = file.iter().cloned().chain([child.to_owned()]).collect();
                self.0.contains_key(&below).then(|| file.iter().chain(path).cloned().collect())
            }
        }
    }

    /// The file that defines what a path names.
    fn definer(&self, mut path: Module) -> Option<Module> {
        // As many `pub use` as there are in a row, or they lead nowhere.
        for _ in 0..8 {
            let depth = (0..=path.len()).rev().find(|depth| self.0.contains_key(&path[..*depth]))?;
            let (file, rest) = (path[..depth].to_vec(), &path[depth..]);
            let exported = rest.first().and_then(|first| self.0[&file].exports.iter().find(|one| one.name == *first));
            let Some(exported) = exported else { return Some(file) };
            let Some(mut next) = self.absolute(&file, &exported.path) else { return Some(file) };
            next.extend_from_slice(&rest[1..]);
            if next == path {
                return Some(file);
            }
            path = next;
        }
        None
    }
}

fn reached<'a>(file: &'a Module, arrows: &'a BTreeMap<&Module, BTreeSet<Module>>) -> BTreeSet<&'a Module> {
    let (mut there, mut next) = (BTreeSet::new(), VecDeque::from([file]));
    while let Some(at) = next.pop_front() {
        next.extend(arrows[at].iter().filter(|to| there.insert(*to)));
    }
    there
}

fn module(name: &str) -> Module {
    let mut parts: Module = name.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if parts.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        parts.pop();
    }
    parts
}

fn parse(text: &str) -> Text {
    let code = source::code(text);
    let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let words = words(code);
    let (mut text, mut at) = (Text::default(), 0);
    while at < words.len() {
        let word = words[at].as_str();
        if word == "use" {
            let is_export = at > 0 && (words[at - 1] == "pub" || words[at - 1] == ")");
            let end = words[at..].iter().position(|word| word == ";").map_or(words.len(), |end| at + end);
            tree(&words[at + 1..end], &[], if is_export { &mut text.exports } else { &mut text.uses });
            at = end;
        } else if is_name(word) && (at == 0 || !["::", "."].contains(&words[at - 1].as_str())) {
            let mut path = vec![word.to_owned()];
            while words.get(at + 1).is_some_and(|next| next == "::")
                && words.get(at + 2).is_some_and(|next| is_name(next))
            {
                path.push(words[at + 2].clone());
                at += 2;
            }
            text.paths.extend((path.len() > 1).then_some(path));
        }
        at += 1;
    }
    text
}

/// One tree of a `use`, without the word itself.
fn tree(words: &[String], before: &[String], leaves: &mut Vec<Use>) {
    let mut path = before.to_vec();
    let mut at = 0;
    while at < words.len() {
        match words[at].as_str() {
            "{" => return branches(&words[at + 1..words.len().saturating_sub(1)], &path, leaves),
            "as" => {
                let name = words.get(at + 1).cloned().unwrap_or_default();
                return leaves.push(Use { path, name });
            }
            "self" if !path.is_empty() => {}
            word if is_name(word) => path.push(word.to_owned()),
            _ => {}
        }
        at += 1;
    }
    if let Some(name) = path.last().cloned() {
        leaves.push(Use { path, name });
    }
}

fn branches(words: &[String], before: &[String], leaves: &mut Vec<Use>) {
    let (mut depth, mut start) = (0, 0);
    for (at, word) in words.iter().enumerate() {
        match word.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            "," if depth == 0 => {
                tree(&words[start..at], before, leaves);
                start = at + 1;
            }
            _ => {}
        }
    }
    if start < words.len() {
        tree(&words[start..], before, leaves);
    }
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Names, `::`, and every other character by itself.
fn words(code: &str) -> Vec<String> {
    let (mut words, mut rest) = (Vec::new(), code.trim_start());
    while let Some(first) = rest.chars().next() {
        let part = |c: char| c.is_alphanumeric() || c == '_';
        let length = match first {
            _ if part(first) => rest.find(|c| !part(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            _ => first.len_utf8(),
        };
        words.push(rest[..length].to_owned());
        rest = rest[length..].trim_start();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_is_found_however_a_file_is_named() {
        let plain = [("lib.rs", "mod a;\nmod b;"), ("a.rs", "use crate::b::B;"), ("b.rs", "fn f() { super::a::f() }")];
        assert_eq!(Files::of(plain).circles(), [["a", "b"]]);
        // Through a re-export, an alias and a tree.
        let winding = [
            ("lib.rs", "mod x; pub use x::c::C as D;"),
            ("x/mod.rs", "pub(crate) mod c; mod d; mod e;"),
            ("x/c.rs", "use super::{d::{self, Y}, e};\nfn f() { e::g() }"),
            ("x/d.rs", "// use super::c::C;\nfn f() { \"crate::x::c::C\"; }"),
            ("x/e.rs", "use crate::{D};"),
        ];
        assert_eq!(Files::of(winding).circles(), [["x/c", "x/e"]]);
    }

    #[test]
    fn the_largest_comes_first() {
        let files = [
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "use crate::a::A;"),
            ("m.rs", "use crate::n::N;"),
            ("n.rs", "use crate::o::O;"),
            ("o.rs", "use crate::m::M; use crate::a;"),
        ];
        assert_eq!(Files::of(files).circles(), [vec!["m", "n", "o"], vec!["a", "b"]]);
    }

    #[test]
    fn a_folder_and_its_own_mod_and_tests_are_no_circle() {
        let files = [
            ("lib.rs", "mod a; use a::b::B;"),
            ("a/mod.rs", "mod b; use b::B; fn f() { b::g() }"),
            ("a/b.rs", "use super::A; use crate::C;\n#[cfg(test)]\nmod tests { use crate::d::D; }"),
            ("d.rs", "use crate::a::b::B; use std::fmt;"),
            ("tests/world.rs", "use crate::d::D;"),
        ];
        assert_eq!(Files::of(files).circles(), Vec::<Vec<String>>::new());
    }
}
