//! Checks that modules of one folder do not import each other in a circle.
//!
//! A module includes all modules below it. Imports between a module and its parent or child are not a circle: `snapshot.rs` and
//! `snapshot/state.rs` are one subject. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::RandomState;
use std::path::Path;

use anyhow::{Context as _, ensure};
use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use syn::visit::Visit;
use syn::{Attribute, ItemMod, ItemUse, UseTree};

use crate::{cargo, git};

/// Folders that still have a circle: the folder of the package, and the path of the module.
const EXCEPTIONS: [(&str, &str); 2] = [("cloud-adapter/budget", "crate"), ("cloud-adapter/budget", "queue")];

/// Path of a module from the root of its crate.
type Module = Vec<String>;

/// Fails with each circle, and with each exception that is not needed any more.
pub(crate) fn none_exist() -> anyhow::Result<()> {
    let root = cargo::root();
    let crates = git::output(["ls-files", "*/src/lib.rs", "*/src/main.rs"])?;
    let packages: BTreeSet<&str> = crates.lines().filter_map(|path| path.split("/src/").next()).collect();
    let mut faults = Vec::new();
    let mut unused: BTreeSet<(&str, &str)> = EXCEPTIONS.into();
    for package in packages {
        let modules = read(&root.join(package).join("src"))?;
        for (folder, members) in circles(&modules) {
            let is_exception =
                EXCEPTIONS.iter().find(|&&(of, within)| of == package && within == folder.as_str());
            match is_exception {
                Some(exception) => drop(unused.remove(exception)),
                None => faults.push(format!("{package}: in {folder}: {}", members.join(", "))),
            }
        }
    }
    faults
        .extend(unused.iter().map(|(package, folder)| format!("{package}: {folder} has no circle any more")));
    ensure!(faults.is_empty(), "{} circles of imports:\n  {}", faults.len(), faults.join("\n  "));
    Ok(())
}

/// Reads the imports of each module below this folder, which contains the root of a crate.
fn read(src: &Path) -> anyhow::Result<BTreeMap<Module, Imports>> {
    let mut modules = BTreeMap::new();
    let mut folders = vec![(src.to_path_buf(), Module::new())];
    while let Some((folder, module)) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            if ["tests", "testing", "bin"].contains(&name.as_str()) {
                continue;
            }
            let is_root = module.is_empty() && ["lib", "main"].contains(&name.as_str());
            let below = if is_root { module.clone() } else { [module.clone(), vec![name]].concat() };
            if path.is_dir() {
                folders.push((path, below));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let file = syn::parse_file(&fs::read_to_string(&path)?);
                let file = file.with_context(|| format!("cannot parse {}", path.display()))?;
                let mut imports = Imports::default();
                imports.visit_file(&file);
                modules.insert(below, imports);
            }
        }
    }
    Ok(modules)
}

/// The paths that a module names, as written.
#[derive(Debug, Default)]
struct Imports(BTreeSet<Vec<String>>);

impl<'ast> Visit<'ast> for Imports {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !module.attrs.iter().any(is_for_tests) {
            syn::visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if !item.attrs.iter().any(is_for_tests) {
            self.add(&item.tree, &mut Vec::new());
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.0.insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        syn::visit::visit_path(self, path);
    }
}

impl Imports {
    fn add(&mut self, tree: &UseTree, before: &mut Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.add(&path.tree, before);
                before.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add(tree, before)),
            UseTree::Name(syn::UseName { ident }) | UseTree::Rename(syn::UseRename { ident, .. }) => {
                self.0.insert([before.as_slice(), &[ident.to_string()]].concat());
            }
            UseTree::Glob(_) => {
                self.0.insert(before.clone());
            }
        }
    }
}

fn is_for_tests(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string().contains("test"))
}

/// Returns the circles by the folder of their modules.
fn circles(modules: &BTreeMap<Module, Imports>) -> Vec<(String, Vec<String>)> {
    let mut edges = BTreeMap::<Module, DiGraphMap<&str, (), RandomState>>::new();
    for (from, imports) in modules {
        for to in imports.0.iter().filter_map(|path| resolve(modules, from, path)) {
            let shared = from.iter().zip(to).take_while(|(a, b)| a == b).count();
            if let (Some(a), Some(b)) = (from.get(shared), to.get(shared)) {
                let folder = from.iter().take(shared).cloned().collect();
                edges.entry(folder).or_default().add_edge(a, b, ());
            }
        }
    }
    let mut found = Vec::new();
    for (folder, graph) in &edges {
        let folder = if folder.is_empty() { "crate".to_owned() } else { folder.join("::") };
        for circle in tarjan_scc(graph).into_iter().filter(|circle| circle.len() > 1) {
            let members: BTreeSet<&str> = circle.into_iter().collect();
            found.push((folder.clone(), members.into_iter().map(str::to_owned).collect()));
        }
    }
    found
}

/// Returns the module that a path of `from` leads into. `None`: the path leads to another crate, or to an item without a module.
fn resolve<'a>(modules: &'a BTreeMap<Module, Imports>, from: &Module, path: &[String]) -> Option<&'a Module> {
    let mut at = from.clone();
    let mut path = path;
    match path.split_first() {
        Some((first, rest)) if first == "crate" => (at, path) = (Module::new(), rest),
        Some((first, rest)) if first == "self" => path = rest,
        Some((first, _)) if first == "super" => {
            let up = path.iter().take_while(|segment| *segment == "super").count();
            at.truncate(at.len().saturating_sub(up));
            path = path.get(up..)?;
        }
        Some((first, _)) => {
            at.push(first.clone());
            let is_child = modules.contains_key(&at);
            at.pop();
            if !is_child {
                return None;
            }
        }
        None => return None,
    }
    for segment in path {
        at.push(segment.clone());
        if !modules.contains_key(&at) {
            at.pop();
            break;
        }
    }
    modules.get_key_value(&at).map(|(module, _)| module)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crate_of(files: &[(&str, &str)]) -> Vec<(String, Vec<String>)> {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        circles(&read(folder.path()).unwrap())
    }

    #[test]
    fn modules_that_import_each_other_are_a_circle() {
        let found = crate_of(&[
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "fn f() { super::c::g() }"),
            ("c.rs", "use crate::{a::{A as It, Other}, c};"),
        ]);
        assert_eq!(found, [("crate".to_owned(), vec!["a".to_owned(), "b".to_owned(), "c".to_owned()])]);
    }

    #[test]
    fn a_module_stands_for_those_below_it() {
        let found = crate_of(&[
            ("lib.rs", "mod a; mod b;"),
            ("a/x.rs", "use crate::b::B;"),
            ("a.rs", "mod x;"),
            ("b/y.rs", "use crate::a::A;"),
            ("b.rs", "mod y;"),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        let siblings = crate_of(&[
            ("lib.rs", "mod a;"),
            ("a.rs", ""),
            ("a/x.rs", "use super::y::Y;"),
            ("a/y.rs", "use super::x::X;"),
        ]);
        assert_eq!(siblings, [("a".to_owned(), vec!["x".to_owned(), "y".to_owned()])]);
    }

    #[test]
    fn parents_tests_and_other_crates_are_no_circle() {
        let found = crate_of(&[
            ("lib.rs", "mod a; mod b;"),
            (
                "a.rs",
                "mod x; use x::X; use b::B; #[cfg(test)] mod tests { use crate::b::B; } #[cfg(test)] use crate::b::C;",
            ),
            ("a/x.rs", "use super::A;"),
            ("a/tests.rs", "use crate::b::B;"),
            ("b.rs", "use crate::a::A; use std::fmt;"),
        ]);
        assert_eq!(found, []);
    }
}
