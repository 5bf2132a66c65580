//! Checks that modules of one folder do not import each other in a circle.
//!
//! A module includes all modules below it. Imports between a module and its parent or child are not a circle: `snapshot.rs` and
//! `snapshot/state.rs` are one subject. A re-exported item counts as an import of the module that defines it, so a parent cannot hide a
//! circle of its children. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::RandomState;
use std::path::Path;

use anyhow::{Context as _, ensure};
use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use syn::visit::Visit;
use syn::{Attribute, Item, ItemMod, ItemUse, UseTree};

use crate::{cargo, git};

/// Path of a module from the root of its crate.
type Module = Vec<String>;

/// Fails if there is a circle, and lists each circle.
pub(crate) fn none_exist() -> anyhow::Result<()> {
    let root = cargo::root();
    let crates = git::output(["ls-files", "*/src/lib.rs", "*/src/main.rs"])?;
    let packages: BTreeSet<&str> = crates.lines().filter_map(|path| path.split("/src/").next()).collect();
    let mut faults = Vec::new();
    for package in packages {
        for (folder, members) in circles(&read(&root.join(package).join("src"))?) {
            faults.push(format!("{package}: in {folder}: {}", members.join(", ")));
        }
    }
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
                modules.insert(below, Imports::of(&file));
            }
        }
    }
    Ok(modules)
}

#[derive(Debug, Default)]
struct Imports {
    paths: BTreeSet<Vec<String>>,
    /// The path of each name that a `use` of the module brings in. Modules below can use these names; other modules can use them if they
    /// are re-exported.
    names: BTreeMap<String, Vec<String>>,
    /// The modules whose names are all brought in.
    globs: Vec<Vec<String>>,
    /// The names of the items that the module defines.
    items: BTreeSet<String>,
}

impl<'ast> Visit<'ast> for Imports {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !module.attrs.iter().any(is_for_tests) {
            syn::visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if !item.attrs.iter().any(is_for_tests) {
            self.paths.extend(brought_in(item).into_iter().map(|(_, path)| path));
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.paths.insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        syn::visit::visit_path(self, path);
    }
}

impl Imports {
    fn of(file: &syn::File) -> Self {
        let mut imports = Self::default();
        imports.visit_file(file);
        for item in &file.items {
            let Item::Use(item) = item else {
                imports.items.extend(name(item).map(ToString::to_string));
                continue;
            };
            if item.attrs.iter().any(is_for_tests) {
                continue;
            }
            for (name, path) in brought_in(item) {
                match name {
                    Some(name) => drop(imports.names.insert(name, path)),
                    None => imports.globs.push(path),
                }
            }
        }
        imports
    }

    fn has(&self, name: &str) -> bool {
        self.names.contains_key(name) || self.items.contains(name)
    }
}

fn name(item: &Item) -> Option<&syn::Ident> {
    match item {
        Item::Const(syn::ItemConst { ident, .. })
        | Item::Enum(syn::ItemEnum { ident, .. })
        | Item::Static(syn::ItemStatic { ident, .. })
        | Item::Struct(syn::ItemStruct { ident, .. })
        | Item::Trait(syn::ItemTrait { ident, .. })
        | Item::Type(syn::ItemType { ident, .. })
        | Item::Union(syn::ItemUnion { ident, .. }) => Some(ident),
        Item::Fn(function) => Some(&function.sig.ident),
        Item::ExternCrate(_) | Item::ForeignMod(_) | Item::Impl(_) | Item::Macro(_) | Item::Mod(_) | _ => {
            None
        }
    }
}

/// Returns the names that a `use` brings in, each with its path. `None`: all names of the module with this path.
fn brought_in(item: &ItemUse) -> Vec<(Option<String>, Vec<String>)> {
    let mut found = Vec::new();
    let mut trees = vec![(Vec::new(), &item.tree)];
    while let Some((before, tree)) = trees.pop() {
        let with = |ident: &syn::Ident| [before.as_slice(), &[ident.to_string()]].concat();
        match tree {
            UseTree::Path(path) => trees.push((with(&path.ident), &path.tree)),
            UseTree::Group(group) => trees.extend(group.items.iter().map(|tree| (before.clone(), tree))),
            UseTree::Name(name) if name.ident == "self" => found.push((before.last().cloned(), before)),
            UseTree::Rename(rename) if rename.ident == "self" => {
                found.push((Some(rename.rename.to_string()), before));
            }
            UseTree::Name(name) => found.push((Some(name.ident.to_string()), with(&name.ident))),
            UseTree::Rename(rename) => found.push((Some(rename.rename.to_string()), with(&rename.ident))),
            UseTree::Glob(_) => found.push((None, before)),
        }
    }
    found
}

fn is_for_tests(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string().contains("test"))
}

/// Returns the circles by the folder of their modules.
fn circles(modules: &BTreeMap<Module, Imports>) -> Vec<(String, Vec<String>)> {
    let mut edges = BTreeMap::<Module, DiGraphMap<&str, (), RandomState>>::new();
    for (from, imports) in modules {
        for to in imports.paths.iter().filter_map(|path| resolve(modules, from, path, &mut BTreeSet::new())) {
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

/// Returns the module that defines the item that `path` names in the module `from`. An item of another crate counts as an item of the
/// module that names it.
///
/// `followed` contains the re-exports on the way. It prevents endless recursion, because a `use` of another crate can have the name of that
/// crate.
fn resolve<'a>(
    modules: &'a BTreeMap<Module, Imports>,
    from: &Module,
    path: &[String],
    followed: &mut BTreeSet<(Module, String)>,
) -> Option<&'a Module> {
    let (mut at, mut path) = start(from, path);
    while let Some((first, rest)) = path.split_first() {
        at.push(first.clone());
        if modules.contains_key(&at) {
            path = rest;
            continue;
        }
        at.pop();
        let Imports { names, globs, .. } = modules.get(&at)?;
        let target = names.get(first).map(|target| [target, rest].concat()).or_else(|| {
            let brings_in = |glob: &&Vec<String>| {
                let module = resolve(modules, &at, glob, &mut followed.clone());
                module.and_then(|module| modules.get(module)).is_some_and(|imports| imports.has(first))
            };
            globs.iter().find(brings_in).map(|glob| [glob, path].concat())
        });
        match target {
            Some(target) if followed.insert((at.clone(), first.clone())) => {
                return resolve(modules, &at, &target, followed);
            }
            Some(_) | None => break,
        }
    }
    modules.get_key_value(&at).map(|(module, _)| module)
}

/// Returns the module at which a path in the module `from` begins, and the rest of the path.
fn start<'a>(from: &Module, path: &'a [String]) -> (Module, &'a [String]) {
    match path.split_first() {
        Some((first, rest)) if first == "crate" => (Module::new(), rest),
        Some((first, rest)) if first == "self" => (from.clone(), rest),
        Some((first, _)) if first == "super" => {
            let up = path.iter().take_while(|segment| *segment == "super").count();
            let depth = from.len().saturating_sub(up);
            (from.iter().take(depth).cloned().collect(), path.get(up..).unwrap_or_default())
        }
        Some(_) | None => (from.clone(), path),
    }
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

    #[test]
    fn a_circle_through_a_reexport_is_found() {
        let circle = [("a".to_owned(), vec!["x".to_owned(), "y".to_owned()])];
        for reexport in ["pub(crate) use x::X;", "pub use self::x::{X as X};", "use crate::a::x::*;"] {
            let found = crate_of(&[
                ("lib.rs", "mod a;"),
                ("a.rs", &format!("mod x; mod y; {reexport}")),
                ("a/x.rs", "use super::y::Y; pub struct X;"),
                ("a/y.rs", "use crate::a::X;"),
            ]);
            assert_eq!(found, circle, "{reexport}");
        }
        let qualified = crate_of(&[
            ("lib.rs", "mod a;"),
            ("a.rs", "mod x; mod y; pub use x::X;"),
            ("a/x.rs", "use super::y::Y; pub struct X;"),
            ("a/y.rs", "use crate::a; fn f() { a::X::new() }"),
        ]);
        assert_eq!(qualified, circle);
    }

    #[test]
    fn a_reexport_is_an_import_of_the_module_that_defines_the_item() {
        let found = crate_of(&[
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "pub use crate::b::B; use crate::c::C;"),
            ("b.rs", "pub struct B;"),
            ("c.rs", "use crate::a::B;"),
        ]);
        assert_eq!(found, []);
        let of_another_crate = crate_of(&[
            ("lib.rs", "mod a; mod b; pub use http::{self, Uri};"),
            ("a.rs", "use crate::{Uri, http}; use crate::b::B;"),
            ("b.rs", "use crate::http;"),
        ]);
        assert_eq!(of_another_crate, []);
    }
}
