//! Tracks field ownership in `metadata.managedFields`, only for finalizers, and for addresses and conditions in a status.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

/// The fields that a manager owns: its finalizers, whether it owns the addresses, and the types of its conditions.
type Fields = (BTreeSet<String>, bool, BTreeSet<String>);

/// Records that `manager` changed `old` to `new`. A field that was removed has no owner afterwards.
pub(super) fn note(old: &Value, new: &mut Value, manager: &str) {
    let mut managers = read(new);
    let (before, after) = (finalizers(old), finalizers(new));
    managers.values_mut().for_each(|(held, ..)| held.retain(|it| after.contains(it)));
    let own = managers.entry(manager.to_owned()).or_default();
    own.0.extend(after.difference(&before).cloned());
    if addresses(old) != addresses(new) {
        let written = !addresses(new).is_empty();
        managers.values_mut().for_each(|(_, held, _)| *held = false);
        managers.entry(manager.to_owned()).or_default().1 = written;
    }
    let (before, after) = (conditions(old), conditions(new));
    let is_kept = |it: &String| after.get(it).is_some_and(|now| before.get(it) == Some(now));
    managers.values_mut().for_each(|(.., held)| held.retain(is_kept));
    let written = after.keys().filter(|it| !is_kept(it)).cloned();
    managers.entry(manager.to_owned()).or_default().2.extend(written);
    let entries: Vec<Value> =
        managers.iter().filter_map(|(manager, fields)| entry(manager, fields)).collect();
    if let Some(metadata) = new.get_mut("metadata").and_then(Value::as_object_mut) {
        match entries.is_empty() {
            true => drop(metadata.remove("managedFields")),
            false => drop(metadata.insert("managedFields".to_owned(), entries.into())),
        }
    }
}

fn read(object: &Value) -> BTreeMap<String, Fields> {
    let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    let fields = |entry: &Value| {
        let finalizers = entry.pointer("/fieldsV1/f:metadata/f:finalizers").and_then(Value::as_object);
        let keys = finalizers.into_iter().flat_map(Map::keys);
        let held = keys.filter_map(|key| key.strip_prefix("v:\"")?.strip_suffix('"').map(str::to_owned));
        let addresses = entry.pointer("/fieldsV1/f:status/f:loadBalancer/f:ingress").is_some();
        let conditions = entry.pointer("/fieldsV1/f:status/f:conditions").and_then(Value::as_object);
        let keys = conditions.into_iter().flat_map(Map::keys);
        let types =
            keys.filter_map(|key| key.strip_prefix("k:{\"type\":\"")?.strip_suffix("\"}").map(str::to_owned));
        (held.collect(), addresses, types.collect())
    };
    let manager = |entry: &Value| Some(entry.get("manager")?.as_str()?.to_owned());
    entries.into_iter().flatten().filter_map(|it| Some((manager(it)?, fields(it)))).collect()
}

fn entry(manager: &str, (finalizers, addresses, conditions): &Fields) -> Option<Value> {
    let mut fields = Map::new();
    if !finalizers.is_empty() {
        let mut held: Map<String, Value> =
            finalizers.iter().map(|it| (format!("v:\"{it}\""), json!({}))).collect();
        held.insert(".".to_owned(), json!({}));
        fields.insert("f:metadata".to_owned(), json!({ "f:finalizers": held }));
    }
    let mut status = Map::new();
    if *addresses {
        status.insert("f:loadBalancer".to_owned(), json!({ "f:ingress": {} }));
    }
    if !conditions.is_empty() {
        let key = |it: &String| (format!("k:{{\"type\":\"{it}\"}}"), json!({}));
        status.insert("f:conditions".to_owned(), Value::Object(conditions.iter().map(key).collect()));
    }
    if !status.is_empty() {
        fields.insert("f:status".to_owned(), Value::Object(status));
    }
    (!fields.is_empty()).then(|| {
        json!({
            "manager": manager, "operation": "Update", "apiVersion": "v1", "subresource": "status",
            "fieldsType": "FieldsV1", "fieldsV1": fields,
        })
    })
}

fn finalizers(object: &Value) -> BTreeSet<String> {
    let items = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    items.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn addresses(object: &Value) -> Vec<Value> {
    let items = object.pointer("/status/loadBalancer/ingress").and_then(Value::as_array);
    items.cloned().unwrap_or_default()
}

fn conditions(object: &Value) -> BTreeMap<String, Value> {
    let items = object.pointer("/status/conditions").and_then(Value::as_array);
    let named = |it: &Value| Some((it.get("type")?.as_str()?.to_owned(), it.clone()));
    items.into_iter().flatten().filter_map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_writer_owns_its_fields_until_they_are_removed() {
        let object = |finalizers: &[&str], ip: &str| {
            json!({
                "metadata": { "finalizers": finalizers },
                "status": { "loadBalancer": { "ingress": [{ "ip": ip }] } },
            })
        };
        let step = |before: &Value, mut after: Value, manager: &str| {
            after["metadata"]["managedFields"] = before["metadata"]["managedFields"].clone();
            note(before, &mut after, manager);
            after
        };
        let held = |object: &Value| {
            let line = |(manager, (finalizers, addresses, _)): (String, Fields)| {
                let finalizers: Vec<String> = finalizers.into_iter().collect();
                format!("{manager} [{}] {addresses}", finalizers.join(" "))
            };
            read(object).into_iter().map(line).collect::<Vec<_>>().join(", ")
        };
        let first = step(&json!({ "metadata": {} }), object(&["x/a"], "1"), "one");
        assert_eq!(held(&first), "one [x/a] true");
        let second = step(&first, object(&["x/a", "x/b"], "2"), "two");
        assert_eq!(held(&second), "one [x/a] false, two [x/b] true");
        let third = step(&second, object(&["x/b"], "2"), "one");
        assert_eq!(held(&third), "two [x/b] true");
    }
}
