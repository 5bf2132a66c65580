//! Checks that the schema contains exactly the keys of values.yaml, so that it accepts every valid key and refuses misspelt keys.

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
        let name = schema.get("$ref").and_then(Value::as_str).and_then(|it| it.strip_prefix("#/$defs/"));
        let definitions = self.definitions;
        let schema = name.and_then(|name| definitions.get(name)).unwrap_or(schema);
        if schema.get("type").is_none() && schema.get("enum").is_none() {
            self.faults.push(format!("{path}: has neither a type nor an enum"));
        }
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
        if schema.get("additionalProperties").is_none() {
            self.faults.push(format!("{path}: accepts misspelt keys; write \"additionalProperties\": false"));
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

    use super::{Entry, faults};

    /// The faults of a schema with this definition of `a`, for values with the key `a.b`.
    fn found(a: &Value) -> Vec<String> {
        let entry = |key: &str| Entry { key: key.to_owned(), default: "1", meaning: String::new() };
        let schema = json!({ "type": "object", "additionalProperties": false, "properties": { "a": a },
            "$defs": { "word": { "type": "string" } } });
        faults(&[entry("a"), entry("a.b")], &schema.to_string()).unwrap()
    }

    #[test]
    fn schema_has_exactly_the_keys_of_the_values() {
        let closed = |properties: &Value| json!({ "type": "object", "additionalProperties": false, "properties": properties });
        let word = json!({ "$ref": "#/$defs/word" });
        assert_eq!(found(&closed(&json!({ "b": word }))), Vec::<String>::new());
        let cases = [
            (json!({ "type": "object" }), "a.b: is in values.yaml, but not in the schema"),
            (closed(&json!({ "b": word, "c": word })), "a.c: is in the schema, but not in values.yaml"),
            (json!({ "type": "object", "properties": { "b": word } }), "a: accepts misspelt keys"),
            (closed(&json!({ "b": { "title": "x" } })), "a.b: has neither a type"),
        ];
        for (a, wanted) in cases {
            let faults = found(&a);
            assert!(matches!(&faults[..], [fault] if fault.starts_with(wanted)), "{wanted}: {faults:?}");
        }
    }
}
