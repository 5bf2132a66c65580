//! Checks that the schema contains exactly the keys of values.yaml, and lists its keys for the templates, which refuse all others. The schema
//! itself accepts unknown keys, because its message could not name a similar key.

use std::collections::BTreeSet;

use anyhow::Context;
use serde_json::{Map, Value};

use super::Entry;

/// Keys whose children values.yaml does not list. docs/limits.md and Kubernetes document these children.
const OPEN: [&str; 4] = ["adapter.limits", "adapter.cache", "resources", "affinity"];
/// Keys that Helm itself defines.
const OF_HELM: &str = "global";

/// Returns the keys that are missing from the schema, and the keys that exist only in the schema.
pub(super) fn faults(values: &[Entry<'_>], schema: &str) -> anyhow::Result<Vec<String>> {
    let schema: Value = serde_json::from_str(schema).context("values.schema.json")?;
    let definitions = schema.get("$defs").and_then(Value::as_object).context("it has no $defs")?;
    let mut known = Known { definitions, keys: BTreeSet::new(), faults: Vec::new() };
    known.visit("", &schema);
    let Known { keys, mut faults, .. } = known;
    for Entry { key, .. } in values {
        if !keys.contains(key) && !is_open(key) {
            faults.push(format!("{key}: is in values.yaml, but not in the schema"));
        }
    }
    let given: BTreeSet<_> = values.iter().map(|entry| entry.key.as_str()).collect();
    for key in keys.iter().filter(|key| !given.contains(key.as_str()) && !is_open(key) && *key != OF_HELM) {
        faults.push(format!("{key}: is in the schema, but not in values.yaml"));
    }
    Ok(faults)
}

/// Returns files/keys.yaml: the keys of all objects of the schema. `*` is every item of a list or every key of a map; a key without children
/// has a value that the templates do not search.
pub(super) fn keys(schema: &str) -> anyhow::Result<String> {
    let schema: Value = serde_json::from_str(schema).context("values.schema.json")?;
    let definitions = schema.get("$defs").and_then(Value::as_object).context("it has no $defs")?;
    let mut text =
        "# Written by `cargo xtask chart` from values.schema.json, which templates cannot read.\n".to_owned();
    list(&mut text, 0, &children(&schema, definitions));
    Ok(text)
}

fn list(text: &mut String, depth: usize, keys: &[(String, Tree)]) {
    for (key, Tree(below)) in keys {
        text.push_str(&"  ".repeat(depth));
        text.push_str(key);
        text.push_str(":\n");
        list(text, depth + 1, below);
    }
}

/// The known keys below a key. Empty: all keys are valid.
struct Tree(Vec<(String, Self)>);

fn children(schema: &Value, definitions: &Map<String, Value>) -> Vec<(String, Tree)> {
    let schema = resolved(schema, definitions);
    let below = |it: &Value| Tree(children(it, definitions));
    let properties = schema.get("properties").and_then(Value::as_object);
    if let Some(properties) = properties.filter(|_| schema.get("additionalProperties").is_some()) {
        return properties.iter().map(|(key, schema)| (key.clone(), below(schema))).collect();
    }
    let each = [schema.get("items"), schema.get("additionalProperties")].into_iter().flatten();
    let each = each.map(below).filter(|Tree(keys)| !keys.is_empty());
    each.map(|keys| ("\"*\"".to_owned(), keys)).collect()
}

fn resolved<'a>(schema: &'a Value, definitions: &'a Map<String, Value>) -> &'a Value {
    let name = schema.get("$ref").and_then(Value::as_str).and_then(|it| it.strip_prefix("#/$defs/"));
    name.and_then(|name| definitions.get(name)).unwrap_or(schema)
}

fn is_open(key: &str) -> bool {
    OPEN.iter().any(|open| key.contains(&format!("{open}.")))
}

/// The definitions of the schema, and the keys and faults found so far.
struct Known<'a> {
    definitions: &'a Map<String, Value>,
    /// Keys with their full paths.
    keys: BTreeSet<String>,
    faults: Vec<String>,
}

impl Known<'_> {
    fn visit(&mut self, path: &str, schema: &Value) {
        let schema = resolved(schema, self.definitions);
        if schema.get("type").is_none() && schema.get("enum").is_none() {
            self.faults.push(format!("{path}: has neither a type nor an enum"));
        }
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
        if schema.get("additionalProperties") != Some(&Value::Bool(true)) {
            self.faults.push(format!(
                "{path}: write \"additionalProperties\": true, with which the templates refuse misspelt keys and name similar ones"
            ));
        }
        for (key, schema) in properties {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            self.keys.insert(path.clone());
            self.visit(&path, schema);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Entry, faults, keys};

    /// The faults of a schema with this definition of `a`, for values with the key `a.b`.
    fn found(a: &Value) -> Vec<String> {
        let entry = |key: &str| Entry { key: key.to_owned(), default: "1", meaning: String::new() };
        let schema = json!({ "type": "object", "additionalProperties": true, "properties": { "a": a },
            "$defs": { "word": { "type": "string" } } });
        faults(&[entry("a"), entry("a.b")], &schema.to_string()).unwrap()
    }

    #[test]
    fn schema_has_exactly_the_keys_of_the_values() {
        let closed = |properties: &Value| json!({ "type": "object", "additionalProperties": true, "properties": properties });
        let word = json!({ "$ref": "#/$defs/word" });
        assert_eq!(found(&closed(&json!({ "b": word }))), Vec::<String>::new());
        let cases = [
            (json!({ "type": "object" }), "a.b: is in values.yaml, but not in the schema"),
            (closed(&json!({ "b": word, "c": word })), "a.c: is in the schema, but not in values.yaml"),
            (
                json!({ "type": "object", "properties": { "b": word } }),
                "a: write \"additionalProperties\": true",
            ),
            (closed(&json!({ "b": { "title": "x" } })), "a.b: has neither a type"),
        ];
        for (a, wanted) in cases {
            let faults = found(&a);
            assert!(matches!(&faults[..], [fault] if fault.starts_with(wanted)), "{wanted}: {faults:?}");
        }
    }

    #[test]
    fn keys_are_those_of_closed_objects() {
        let schema = json!({ "additionalProperties": true, "$defs": {
            "b": { "additionalProperties": true, "properties": { "c": { "type": "string" } } },
        }, "properties": {
            "each": { "additionalProperties": { "$ref": "#/$defs/b" } },
            "items": { "items": { "$ref": "#/$defs/b" } },
            "one": { "$ref": "#/$defs/b" },
            "open": { "items": { "properties": { "c": { "type": "string" } } } },
            "texts": { "additionalProperties": { "type": "string" } },
        } });
        let written = keys(&schema.to_string()).unwrap();
        let (_, listed) = written.split_once('\n').unwrap();
        assert_eq!(listed, "each:\n  \"*\":\n    c:\nitems:\n  \"*\":\n    c:\none:\n  c:\nopen:\ntexts:\n");
    }
}
