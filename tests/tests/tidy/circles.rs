//! No sibling modules import each other in a circle.

use super::{packages, root, tidy};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};
use syn::{
    Attribute, Item, ItemMod, ItemUse, UseTree,
    visit::{self, Visit},
};

/// A module's path in its crate; empty for the root.
type ModulePath = Vec<String>;

/// The modules of a crate without those that are compiled for tests alone.
#[derive(Debug, Default)]
struct Crate {
    modules: BTreeMap<ModulePath, Module>,
}

#[derive(Debug, Default)]
struct Module {
    /// Paths of all imports, and all other paths in code that begin with `crate`, `self` or `super`.
    paths: BTreeSet<Vec<String>>,
    /// The path of each imported name.
    imported: BTreeMap<String, Vec<String>>,
}

/// Sibling modules of which each imports all others, directly or by way of another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Circle {
    parent: String,
    members: Vec<String>,
    /// One import for each edge: the importing module, the imported one and the path.
    edges: Vec<String>,
}

impl Crate {
    /// Reads the crate whose root file is `root`.
    fn read(root: &Path) -> Self {
        let mut read = Self::default();
        let folder = root.parent().expect("a file has a folder");
        read.read_file(root, folder, &[]);
        read
    }

    fn read_file(&mut self, file: &Path, folder: &Path, path: &[String]) {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("cannot read {}: {error}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("cannot parse {}: {error}", file.display()));
        self.add(&parsed.items, folder, path);
    }

    /// Adds a module with its children; `folder` holds the files of its child modules.
    fn add(&mut self, items: &[Item], folder: &Path, path: &[String]) {
        let mut module = Module::default();
        for item in items {
            module.visit_item(item);
        }
        self.modules.insert(path.to_vec(), module);
        for item in items {
            let Item::Mod(child) = item else { continue };
            if is_for_tests(&child.attrs) {
                continue;
            }
            let name = child.ident.to_string();
            let child_path = [path, std::slice::from_ref(&name)].concat();
            let child_folder = folder.join(&name);
            match &child.content {
                Some((_, items)) => self.add(items, &child_folder, &child_path),
                None => {
                    let file = file_of(child, folder);
                    self.read_file(&file, &child_folder, &child_path);
                }
            }
        }
    }

    /// Returns the module that a path names or whose item it names, after re-exports.
    fn resolve(&self, from: &[String], path: &[String], depth: usize) -> Option<ModulePath> {
        let (mut module, mut rest) = match path.first()?.as_str() {
            "crate" => (vec![], &path[1..]),
            "self" => (from.to_vec(), &path[1..]),
            "super" => (from.split_last()?.1.to_vec(), &path[1..]),
            _ => (from.to_vec(), path),
        };
        let is_relative = rest.len() == path.len();
        let mut steps = 0;
        while let Some((first, others)) = rest.split_first() {
            if first == "super" {
                module.pop()?;
            } else {
                module.push(first.clone());
                if !self.modules.contains_key(&module) {
                    module.pop();
                    break;
                }
            }
            (rest, steps) = (others, steps + 1);
        }
        if is_relative && steps == 0 {
            // The path of another crate.
            return None;
        }
        let Some(name) = rest.first() else { return Some(module) };
        match self.modules[&module].imported.get(name) {
            Some(target) if depth < 8 => self.resolve(&module, target, depth + 1).or(Some(module)),
            _ => Some(module),
        }
    }

    /// Returns the circles among the children of each module.
    fn circles(&self) -> Vec<Circle> {
        // By parent: importing child, imported child, and an example.
        let mut edges: BTreeMap<ModulePath, BTreeMap<(String, String), String>> = BTreeMap::new();
        for (from, module) in &self.modules {
            for path in &module.paths {
                let Some(to) = self.resolve(from, path, 0) else { continue };
                let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
                let (Some(importer), Some(imported)) = (from.get(common), to.get(common)) else { continue };
                let example = format!("{} imports {}", from.join("::"), path.join("::"));
                let siblings = edges.entry(from[..common].to_vec()).or_default();
                siblings.entry((importer.clone(), imported.clone())).or_insert(example);
            }
        }
        edges.iter().flat_map(|(parent, edges)| circles_of(parent, edges)).collect()
    }
}

/// Returns the strongly connected groups of more than one module.
fn circles_of(parent: &[String], edges: &BTreeMap<(String, String), String>) -> Vec<Circle> {
    let names: BTreeSet<&String> = edges.keys().flat_map(|(from, to)| [from, to]).collect();
    let reached = |start: &String| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![start.clone()]);
        while let Some(from) = open.pop() {
            for (_, to) in edges.keys().filter(|(importer, _)| *importer == from) {
                if reached.insert(to.clone()) {
                    open.push(to.clone());
                }
            }
        }
        reached
    };
    let reached: BTreeMap<&String, BTreeSet<String>> = names.iter().map(|name| (*name, reached(name))).collect();
    let mut circles = BTreeSet::new();
    for name in names {
        let members: Vec<String> =
            reached[name].iter().filter(|other| reached[*other].contains(name)).cloned().collect();
        if members.len() > 1 {
            let within = |(from, to): &(String, String)| members.contains(from) && members.contains(to);
            let edges = edges.iter().filter(|(edge, _)| within(edge)).map(|(_, example)| example.clone()).collect();
            circles.insert(Circle { parent: parent.join("::"), members, edges });
        }
    }
    circles.into_iter().collect()
}

impl<'ast> Visit<'ast> for Module {
    fn visit_item(&mut self, item: &'ast Item) {
        if !attributes(item).is_some_and(is_for_tests) {
            visit::visit_item(self, item);
        }
    }

    // A child module is a module of its own.
    fn visit_item_mod(&mut self, _: &'ast ItemMod) {}

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        for (path, name) in paths_of(&item.tree, &[]) {
            if let Some(name) = name {
                self.imported.insert(name, path.clone());
            }
            self.paths.insert(path);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if segments.len() > 1 && ["crate", "self", "super"].contains(&segments[0].as_str()) {
            self.paths.insert(segments);
        }
        visit::visit_path(self, path);
    }
}

/// Returns the paths of an import with the name that each gets.
fn paths_of(tree: &UseTree, before: &[String]) -> Vec<(Vec<String>, Option<String>)> {
    let with = |name: String| [before, &[name]].concat();
    match tree {
        UseTree::Path(path) => paths_of(&path.tree, &with(path.ident.to_string())),
        UseTree::Group(group) => group.items.iter().flat_map(|tree| paths_of(tree, before)).collect(),
        UseTree::Glob(_) => vec![(before.to_vec(), None)],
        UseTree::Name(name) if name.ident == "self" => vec![(before.to_vec(), before.last().cloned())],
        UseTree::Name(name) => vec![(with(name.ident.to_string()), Some(name.ident.to_string()))],
        UseTree::Rename(rename) if rename.ident == "self" => vec![(before.to_vec(), Some(rename.rename.to_string()))],
        UseTree::Rename(rename) => vec![(with(rename.ident.to_string()), Some(rename.rename.to_string()))],
    }
}

fn attributes(item: &Item) -> Option<&[Attribute]> {
    Some(match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => return None,
    })
}

/// Returns whether an item is compiled for tests alone: `#[cfg(test)]`, `#[cfg(all(test, …))]`.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        let words = list.tokens.to_string();
        list.path.is_ident("cfg")
            && (words == "test" || words.starts_with("all (test") || words.starts_with("all(test"))
    })
}

/// Returns the file of a child module that is declared with `mod name;`.
fn file_of(module: &ItemMod, folder: &Path) -> PathBuf {
    let name = module.ident.to_string();
    let beside = folder.join(format!("{name}.rs"));
    if beside.exists() { beside } else { folder.join(name).join("mod.rs") }
}

/// Returns a finding for a circle in a package's folder.
fn finding(folder: &str, Circle { parent, members, edges }: &Circle) -> String {
    format!("{folder}: modules of `{parent}` import each other: {}\n    {}", members.join(", "), edges.join("\n    "))
}

#[test]
fn sibling_modules_import_one_way() {
    let folders: BTreeSet<String> = packages().into_iter().map(|package| package.folder).collect();
    let roots = |folder: &String| ["lib.rs", "main.rs"].map(|file| root().join(folder).join("src").join(file));
    let mut n_modules = 0;
    let mut findings = Vec::new();
    for folder in &folders {
        for root in roots(folder).into_iter().filter(|root| root.exists()) {
            let read = Crate::read(&root);
            n_modules += read.modules.len();
            findings.extend(read.circles().iter().map(|circle| finding(folder, circle)));
        }
    }
    assert!(n_modules > 500, "the rule reads the modules of all packages: {n_modules}");
    tidy(findings);
}

#[test]
fn must_find_a_circle_through_a_child_and_a_re_export() {
    let mut crate_ = Crate::default();
    let text = "mod a { mod inner { use crate::b::Item; } }\n\
                mod b { pub use inner::Item; mod inner { fn f() { super::super::c::g() } } }\n\
                mod c { use crate::a; #[cfg(test)] mod tests { use crate::d; } }\n\
                mod d { use crate::c; use std::fmt; }\n";
    crate_.add(&syn::parse_file(text).expect("Rust").items, Path::new(""), &[]);
    let circles = crate_.circles();
    assert_eq!(circles.len(), 1, "{circles:?}");
    assert_eq!((circles[0].parent.as_str(), circles[0].edges.len()), ("", 3), "{circles:?}");
    assert_eq!(circles[0].members, ["a", "b", "c"]);
}
