//! Tests with shell scripts that print a version instead of real programs. No test builds a program.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::compiler;

use super::{Environment, Error, Origin, Progress, Recipe, Tool, find, missing};

#[test]
fn assets_take_precedence_over_the_path() {
    let place = TempHome::new();
    let assets = place.program("assets", "etcd", "etcd Version: 3.6.1");
    let path = place.program("bin", "etcd", "etcd Version: 3.6.8");

    let found = find(Tool::Etcd, &place.environment(Some(&assets), &[&path]), &mut Notes::default()).unwrap();

    assert_eq!(found.origin, Origin::Assets);
    assert_eq!(found.path, assets.join("etcd"));
    assert_eq!(found.version.to_string(), "v3.6.1");
}

#[test]
fn other_minor_version_is_skipped_with_a_note() {
    let place = TempHome::new();
    let wrong = place.program("one", "kubectl", "Client Version: v1.32.4-dispatcher");
    let right = place.program("two", "kubectl", "Client Version: v1.36.0");
    let mut notes = Notes::default();

    let found = find(Tool::Kubectl, &place.environment(None, &[&wrong, &right]), &mut notes).unwrap();

    assert_eq!(found.path, right.join("kubectl"));
    assert_eq!(notes.0.len(), 1);
    assert!(notes.0[0].contains("the version is v1.32.4, but v1.36.3 is required"), "{notes:?}");
}

#[test]
fn cache_is_used_last() {
    let place = TempHome::new();
    let environment = place.environment(None, &[]);
    let cached = Recipe::read(Tool::Helm, &environment.modules).unwrap().executable(&environment.cache);
    fs::create_dir_all(cached.parent().unwrap()).unwrap();
    fs::write(&cached, "").unwrap();

    let found = find(Tool::Helm, &environment, &mut Notes::default()).unwrap();

    assert_eq!((found.origin, found.path), (Origin::Cache, cached));
    assert_eq!(missing(&[Tool::Helm, Tool::Etcd], &environment).unwrap(), [Tool::Etcd]);
}

#[test]
fn an_unreadable_pin_names_the_file() {
    let place = TempHome::new();
    let mut environment = place.environment(None, &[]);
    environment.modules = place.0.path().join("nowhere");

    let error = find(Tool::Helm, &environment, &mut Notes::default()).unwrap_err();

    assert!(matches!(&error, Error::Io { path, .. } if path.ends_with("helm/go.mod")), "{error}");
}

#[test]
fn missing_compiler_error_names_both_remedies() {
    let text = Error::NoGo { tool: Tool::Etcd }.to_string();
    assert!(text.contains("etcd v3.6.8") && text.contains("install Go"), "{text}");
    assert!(text.contains("KUBEBUILDER_ASSETS"), "{text}");
}

#[test]
fn old_compiler_error_names_both_remedies() {
    let place = TempHome::new();
    let go = place.program("go", "go", "go1.19.13").join("go");

    let text = compiler::check(Tool::Etcd, &go).unwrap_err().to_string();

    for words in ["etcd v3.6.8", "is go1.19.13;", "install Go 1.26", "1.21 or newer", "KUBEBUILDER_ASSETS"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[derive(Debug, Default)]
struct Notes(Vec<String>);

impl Progress for Notes {
    fn note(&mut self, note: &str) {
        self.0.push(note.to_owned());
    }
    fn say(&mut self, _line: &str) {}
    fn begin(&mut self, tool: Tool, _total: Duration) {
        panic!("builds {tool}");
    }
    fn tick(&mut self, _elapsed: Duration) {}
    fn end(&mut self) {}
}

/// A program cannot be started while a process has it open for writing. A process that another test starts at that moment inherits the open
/// file. Therefore these tests run one after the other.
static TURN: Mutex<()> = Mutex::new(());

struct TempHome(tempfile::TempDir, #[expect(dead_code, reason = "held, never read")] MutexGuard<'static, ()>);

impl TempHome {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap(), TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn program(&self, dir: &str, name: &str, answer: &str) -> PathBuf {
        let dir = self.0.path().join(dir);
        fs::create_dir(&dir).unwrap();
        let file = dir.join(name);
        fs::write(&file, format!("#!/bin/sh\necho '{answer}'\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        dir
    }

    fn environment(&self, assets: Option<&Path>, path: &[&Path]) -> Environment {
        Environment {
            assets: assets.map(Path::to_path_buf),
            path: path.iter().map(|dir| dir.to_path_buf()).collect(),
            cache: self.0.path().join("cache"),
            modules: PathBuf::from(env!("CARGO_MANIFEST_DIR")),
        }
    }
}
