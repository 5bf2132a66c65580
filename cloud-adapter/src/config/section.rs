//! Parses a file section by section and key by key. Keys that no code reads are faults. All faults are collected, each with the path of its
//! key and the fix.

use std::{collections::BTreeMap, time::Duration};

use jiff::fmt::friendly::SpanParser;
use serde_json::{Map, Value};
use telemetry::hint;

/// Maximum duration. A longer duration is a typing error, and could overflow the clock.
const LONGEST: Duration = Duration::from_hours(30 * 24);

/// Parses a whole file.
///
/// Returns all faults of the file. If the file is not valid YAML, this is the only fault.
pub(super) fn read<T>(text: &str, read: impl FnOnce(&mut Section<'_>) -> T) -> Result<T, Vec<String>> {
    let value = if text.trim().is_empty() {
        Value::Null
    } else {
        // The error is reported without an excerpt of the file, because a file named by mistake may contain secrets.
        serde_saphyr::from_str(text).map_err(|error| vec![error.without_snippet().to_string()])?
    };
    let mut faults = Vec::new();
    let value = Section::enter(String::new(), value, &mut faults, read);
    if faults.is_empty() { Ok(value) } else { Err(faults) }
}

/// A mapping of the file, whose keys are read one by one.
#[derive(Debug)]
pub(super) struct Section<'a> {
    path: String,
    content: Map<String, Value>,
    known: Vec<&'static str>,
    faults: &'a mut Vec<String>,
}

impl Section<'_> {
    /// Returns the section below a key; a missing section counts as empty.
    pub(super) fn section<T>(&mut self, key: &'static str, read: impl FnOnce(&mut Section<'_>) -> T) -> T {
        let value = self.take(key).unwrap_or(Value::Null);
        Section::enter(self.path_of(key), value, self.faults, read)
    }

    /// Returns the sections below a key. The names of these sections are arbitrary.
    pub(super) fn sections<T>(
        &mut self,
        key: &'static str,
        mut read: impl FnMut(&str, &mut Section<'_>) -> Option<T>,
    ) -> BTreeMap<String, T> {
        self.section(key, |all| {
            let named = std::mem::take(&mut all.content).into_iter();
            let read = named.filter_map(|(name, value)| {
                let path = all.path_of(&name);
                let one = Section::enter(path, value, all.faults, |one| read(&name, one))?;
                Some((name, one))
            });
            read.collect()
        })
    }

    /// Reads a duration, such as `30s`: above zero, and at most [`LONGEST`].
    pub(super) fn duration(&mut self, key: &'static str) -> Option<Duration> {
        let value = self.take(key)?;
        let parsed = value.as_str().and_then(|text| SpanParser::new().parse_unsigned_duration(text).ok());
        let parsed = parsed.filter(|duration| !duration.is_zero());
        let parsed = self.or_fault(key, parsed, || {
            format!("invalid duration {value}: use a number with its unit, such as 20ms, 30s, 2m, 1h")
        })?;
        let short = Some(parsed).filter(|duration| *duration <= LONGEST);
        self.or_fault(key, short, || format!("{value}: use 30 days or less, such as 720h"))
    }

    /// Reads a number for which `accept` returns true; `fix` describes the accepted numbers.
    pub(super) fn number(
        &mut self,
        key: &'static str,
        accept: impl FnOnce(f64) -> bool,
        fix: &str,
    ) -> Option<f64> {
        let value = self.take(key)?;
        let number = value.as_f64().filter(|number| number.is_finite() && accept(*number));
        self.or_fault(key, number, || format!("{value}: {fix}"))
    }

    /// Reads a whole number from 1 to `most`.
    pub(super) fn count(&mut self, key: &'static str, most: u32) -> Option<u32> {
        let value = self.take(key)?;
        let count = value.as_u64().and_then(|count| u32::try_from(count).ok());
        let count = count.filter(|count| (1..=most).contains(count));
        self.or_fault(key, count, || format!("{value}: use a whole number from 1 to {most}"))
    }

    pub(super) fn text(&mut self, key: &'static str) -> Option<String> {
        let value = self.take(key)?;
        self.or_fault(key, value.as_str().map(str::to_owned), || format!("{value}: use a string"))
    }

    pub(super) fn word<T: Copy>(&mut self, key: &'static str, words: &[(&str, T)]) -> Option<T> {
        let value = self.take(key)?;
        let meaning =
            words.iter().find(|(word, _)| value.as_str() == Some(word)).map(|(_, meaning)| *meaning);
        self.or_fault(key, meaning, || {
            format!("{value}: use {}", words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(" or "))
        })
    }

    pub(super) fn faults(&self) -> usize {
        self.faults.len()
    }

    pub(super) fn fault(&mut self, key: &str, text: impl std::fmt::Display) {
        let path = self.path_of(key);
        self.faults.push(format!("{path}: {text}"));
    }

    /// Records a fault of the section as a whole.
    pub(super) fn fault_here(&mut self, text: impl std::fmt::Display) {
        self.faults.push(format!("{}: {text}", self.path));
    }

    fn enter<T>(
        path: String,
        value: Value,
        faults: &mut Vec<String>,
        read: impl FnOnce(&mut Section<'_>) -> T,
    ) -> T {
        let content = match value {
            Value::Object(content) => content,
            Value::Null => Map::new(),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                let place = if path.is_empty() { "the file" } else { &path };
                faults.push(format!("{place}: expected a mapping of keys to values, found {value}"));
                Map::new()
            }
        };
        let mut section = Section { path, content, known: Vec::new(), faults };
        let result = read(&mut section);
        section.refuse_the_rest();
        result
    }

    fn refuse_the_rest(mut self) {
        for key in std::mem::take(&mut self.content).keys() {
            let fault = format!("unknown key{}", hint(key, self.known.iter().copied()));
            self.fault(key, fault);
        }
    }

    /// Returns the value of a key. A key without a value counts as missing.
    fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.content.remove(key).filter(|value| !value.is_null())
    }

    fn or_fault<T>(&mut self, key: &str, value: Option<T>, text: impl FnOnce() -> String) -> Option<T> {
        if value.is_none() {
            self.fault(key, text());
        }
        value
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}
