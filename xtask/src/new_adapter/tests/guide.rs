//! Follows the guide to a driver in Rust from top to bottom. The test puts the guide's code, and the files that the guide copies, at the
//! named places in a new adapter, which must compile.
//!
//! Steps that the guide describes only in words are done here by code. This code fails when the guide changes.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::vec::IntoIter;

use e2e_tools::pages::fences;

use tempfile::TempDir;

use super::{files, name, tested, workspace};
use crate::cargo;
use crate::new_adapter::{SKELETON, write};

const GUIDE: &str = "docs/write-an-adapter.md";
/// The files that the guide copies, and the command by which it does so.
const CODE: &str = "examples/acme-driver";
const COPY: &str = "$ cp -r examples/acme-driver/src adapters/acme/\n";
/// The comment above code that belongs into the client's `impl`.
const IN_CLIENT: &str = "// In `impl Client`:\n";
/// The beginnings of comments that say where the next part of a block belongs.
const ELSEWHERE: &str = "// In ";

/// This test is fast because it compiles nothing. It fails if the guide names a place that does not exist in the skeleton.
#[test]
fn each_block_of_the_guide_fits_into_a_new_adapter() {
    let dir = TempDir::new().expect("a folder");
    put_together(&cargo::root(), &dir.path().join("acme"));
}

#[test]
fn driver_of_the_guide_compiles_and_passes_its_tests() {
    let root = cargo::root();
    let dir = workspace(&root);
    put_together(&root, &dir.path().join("adapters/acme"));
    let said = tested(dir.path(), "adapter-acme");
    assert!(said.contains("each_status_has_its_meaning ... ok"), "{said}");
}

/// Writes a new adapter with the code of the guide into a folder.
fn put_together(root: &Path, new: &Path) {
    write(&root.join(SKELETON), new, &name("acme")).expect("is written");
    let mut guide = Guide::open(root);
    let mut draft = Draft::read(new);
    draft.credentials(&mut guide);
    draft.answers(&mut guide);
    draft.instances(&mut guide);
    draft.0.extend(Draft::read(&root.join(CODE)).0);
    draft.load_balancers_and_routes(&mut guide);
    assert_eq!(guide.0.next(), None, "no place for this block");
    draft.save(new);
}

/// The blocks of Rust code in the guide that are not used yet.
struct Guide(IntoIter<String>);

impl Guide {
    fn open(root: &Path) -> Self {
        let page = fs::read_to_string(root.join(GUIDE)).expect("text");
        assert!(page.contains(COPY), "{GUIDE}: no {COPY}");
        let rust = fences(&page).into_iter().filter(|fence| fence.language == "rust");
        let blocks: Vec<_> = rust.map(|fence| fence.body.join("\n") + "\n").collect();
        Self(blocks.into_iter())
    }

    fn next(&mut self) -> String {
        self.0.next().expect("another block")
    }

    /// Returns the next code block of the guide, split at the comments that say where the following lines belong (`// In ...`).
    fn parts<const N: usize>(&mut self) -> [String; N] {
        let mut parts = vec![String::new()];
        for line in self.next().split_inclusive('\n') {
            if line.starts_with(ELSEWHERE) {
                parts.push(String::new());
            } else {
                parts.last_mut().expect("the first").push_str(line);
            }
        }
        parts.try_into().expect("this number of parts")
    }
}

struct Draft(BTreeMap<String, String>);

impl Draft {
    fn read(new: &Path) -> Self {
        let rust = files(new)
            .expect("a folder")
            .into_iter()
            .filter(|file| file.extension().is_some_and(|it| it == "rs"));
        let text = |file: &Path| fs::read_to_string(new.join(file)).expect("text");
        Self(rust.map(|file| (file.display().to_string(), text(&file))).collect())
    }

    /// Writes the sources. Removes the expectations of the lint `dead_code`, because the guide's code uses these items.
    fn save(&self, new: &Path) {
        for (file, text) in &self.0 {
            let unused = |line: &&str| line.contains("expect(dead_code");
            let text: String = text.split_inclusive('\n').filter(|line| !unused(line)).collect();
            let path = new.join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a created folder");
            fs::write(path, text).expect("a written file");
        }
        fs::remove_file(new.join("src/not_written.rs")).expect("it existed");
    }

    fn file(&mut self, file: &str) -> &mut String {
        self.0.get_mut(file).unwrap_or_else(|| panic!("no {file}"))
    }

    fn swap(&mut self, file: &str, from: &str, to: &str) {
        let text = self.file(file);
        assert!(text.contains(from), "{file}: no {from}");
        *text = text.replace(from, to);
    }

    /// Adds a block to a file: imports above the other imports, methods of the client to its `impl`, and the rest above the tests.
    fn add(&mut self, file: &str, block: &str) {
        let (imports, rest) = imports(block);
        let (items, of_client) = rest.split_once(IN_CLIENT).unwrap_or((&rest, ""));
        let text = self.file(file);
        let end = text.find("\n#[cfg(test)]\n").unwrap_or(text.len());
        text.insert_str(end, &format!("\n{items}"));
        if !of_client.is_empty() {
            let client = "\nimpl Client {\n";
            let begin = text.find(client).expect("the client") + client.len();
            text.insert_str(begin, &format!("{of_client}\n"));
        }
        let first = text.find("\nuse ").expect("imports") + 1;
        text.insert_str(first, &imports);
    }

    fn function(&mut self, file: &str, name: &str, block: &str) {
        let (imports, function) = imports(block);
        let text = self.file(file);
        text.replace_range(span(text, name), function.trim_start());
        self.add(file, &imports);
    }

    /// Replaces the body of a function, and removes the underscores of its arguments, which the new body uses.
    fn body(&mut self, file: &str, name: &str, block: &str) {
        let text = self.file(file);
        let span = span(text, name);
        let function = text.get(span.clone()).and_then(|text| text.split_once(" {\n"));
        let head = function.expect("a body").0.replace(" _", " ");
        text.replace_range(span, &format!("{head} {{\n{block}}}\n"));
    }

    fn credentials(&mut self, guide: &mut Guide) {
        self.add("src/client.rs", &guide.next());
        self.function("src/driver.rs", "self_check", &guide.next());
        self.swap("src/driver.rs", "not_written::{not_written, nothing_written}", "not_written::not_written");
        let starts = self.file("tests/starts.rs");
        let test = starts.find("#[tokio::test]\nasync fn it_says_what").expect("the last test");
        starts.truncate(test);
    }

    fn answers(&mut self, guide: &mut Guide) {
        let file = "src/classify.rs";
        let [items, last] = guide.parts();
        self.add(file, &items);
        let text = self.file(file);
        let (before, rest) =
            text.split_once("    let fault = fault_of_status(operation, status);\n").expect("three lines");
        let after: String = rest.split_inclusive('\n').skip(2).collect();
        *text = format!("{before}{last}{after}");
    }

    fn instances(&mut self, guide: &mut Guide) {
        let file = "src/instances.rs";
        self.add("src/client.rs", &guide.next());
        self.add(file, &guide.next());
        self.swap(file, "use crate::{AcmeDriver, not_written::not_written};", "use crate::AcmeDriver;");
        self.body(file, "list_page", &guide.next());
        self.body(file, "get_batch", &guide.next());
        self.add(file, &guide.next());
        let [capability, listed] = guide.parts();
        let (imports, capability) = imports(&capability);
        self.add("src/driver.rs", &imports);
        let description = "        Description {\n";
        self.swap("src/driver.rs", description, &format!("{capability}{description}"));
        self.swap("src/driver.rs", "capabilities: Vec::new(),\n", &listed);
    }

    fn load_balancers_and_routes(&mut self, guide: &mut Guide) {
        let driver = "src/driver.rs";
        let [_, calls, tags] = guide.parts();
        self.add("src/client.rs", &calls);
        self.swap("src/lib.rs", "mod not_written;\n", &tags);
        self.function(driver, "execute", &guide.next());
        self.swap(driver, "    not_written::not_written,\n", "");
        let [_, described] = guide.parts();
        let (capabilities, deduplication) = described.split_once("deduplication").expect("both lines");
        self.swap(driver, "capabilities: [\"instances\"].map(capability).into(),\n", capabilities);
        self.swap(
            driver,
            "deduplication: Deduplication::ListThenCreate,\n",
            &format!("deduplication{deduplication}"),
        );
        self.0.remove("src/not_written.rs");
    }
}

fn imports(block: &str) -> (String, String) {
    let (mut imports, mut rest, mut goes_on) = (String::new(), String::new(), false);
    for line in block.split_inclusive('\n') {
        let import = goes_on || line.starts_with("use ");
        goes_on = import && !line.trim_end().ends_with(';');
        if import { imports.push_str(line) } else { rest.push_str(line) }
    }
    (imports, rest)
}

/// Returns the range of a function, including its last line.
fn span(text: &str, name: &str) -> Range<usize> {
    let (mut at, mut begun) = (0, None);
    for line in text.split_inclusive('\n') {
        let end = at + line.len();
        match &begun {
            None if line.contains(&format!("fn {name}(")) => {
                let indent = line.len() - line.trim_start().len();
                begun = Some((at, format!("{}}}\n", " ".repeat(indent))));
            }
            Some((begin, close)) if line == close => return *begin..end,
            None | Some(_) => (),
        }
        at = end;
    }
    panic!("no function {name}")
}
