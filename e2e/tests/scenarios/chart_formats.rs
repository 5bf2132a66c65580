//! Tests of the formats of scalar values, which the templates check so that all faults are reported at once. No API server runs here.

use std::fs;

use e2e::merge;
use serde_json::{Value, json};

use super::chart_names::{all, chart, helm};

/// One run names all faults. The message for a value of the wrong type says what to write.
#[test]
fn all_faults_of_scalars_are_reported_at_once() {
    let mut values = all();
    let change = json!({
        "foo": 1, "clusterName": 123, "dryRun": "true", "hostNetwork": "no", "logLevel": 9,
        "selfTest": { "timeout": 4 },
        "bindAddress": 10,
        "image": { "pullPolicy": "always" },
        "adapter": {
            "replicas": "two", "grpcPort": "8443", "httpPort": 70000, "tls": { "mode": false },
            "podAnnotations": { "x": true }, "extraEnv": [{ "name": "A", "value": 1 }],
            "limits": { "share": 1.5, "queue": { "total": 0 }, "buckets": { "compute": { "rate": "3" } } },
            "openstack": { "cloudsYaml": 71_236 },
            "tolerations": [{ "key": "a", "value": true }],
        },
        "nodeController": { "replicas": 1.5, "resources": { "limits": { "cpu": 2, "memory": true } } },
        "serviceController": { "serviceDefaults": { "idle-timeout": 5, "internal": true } },
    });
    merge(&mut values, &change);
    let said = helm("a", &values).expect_err("wrong types");
    let quotes = "is a number, but must be a text; put it in quotes (on the command line, use --set-string)";
    let faults = [
        "foo: unknown key: use one of: ".to_owned(),
        format!("clusterName: 123 {quotes}"),
        "dryRun: \"true\" is a text, but must be a boolean; remove the quotes (on the command line, use --set-json)\n".to_owned(),
        "hostNetwork: invalid value \"no\"; set it to true or false\n".to_owned(),
        "logLevel: invalid value 9; set it to a level such as info".to_owned(),
        "selfTest.timeout: invalid value 4; set it to a duration such as 4m\n".to_owned(),
        "bindAddress: invalid value 10; set it to an IP address such as 0.0.0.0".to_owned(),
        "image.pullPolicy: invalid value \"always\"; set it to Always, IfNotPresent or Never\n".to_owned(),
        "adapter.replicas: invalid value \"two\"; set it to single or active-standby\n".to_owned(),
        "adapter.grpcPort: \"8443\" is a text, but must be a number; remove the quotes".to_owned(),
        "adapter.httpPort: invalid value 70000; set it to a whole number from 1024 to 65535\n".to_owned(),
        "adapter.tls.mode: invalid value false; set it to generated, secret or \"off\", with the quotes\n".to_owned(),
        "adapter.podAnnotations.x: true is a boolean, but must be a text; put it in quotes".to_owned(),
        format!("adapter.extraEnv.0.value: 1 {quotes}"),
        "adapter.limits.share: invalid value 1.5; set it to a number above 0 and at most 1\n".to_owned(),
        "adapter.limits.queue.total: invalid value 0; set it to a whole number of at least 1\n".to_owned(),
        "adapter.limits.buckets.compute.rate: \"3\" is a text, but must be a number".to_owned(),
        "adapter.openstack.cloudsYaml: invalid value; set it to".to_owned(),
        "adapter.tolerations.0.value: true is a boolean, but must be a text".to_owned(),
        "nodeController.replicas: invalid value 1.5; set it to a whole number from 0 to 64\n".to_owned(),
        "nodeController.resources.limits.memory: invalid value true; set it to a quantity".to_owned(),
        format!("serviceController.serviceDefaults.idle-timeout: 5 {quotes}"),
    ];
    for fault in &faults {
        assert!(said.contains(&format!("\n  - {fault}")), "{fault}: {said}");
    }
    assert_eq!(said.matches("\n  - ").count(), faults.len(), "{said}");
    assert!(!said.contains("71236"), "a secret: {said}");
}

/// The API server would refuse such labels and annotations in the middle of an installation.
#[test]
fn labels_and_annotations_are_those_that_an_api_server_accepts() {
    let long = "a".repeat(64);
    let prefix = format!("{}a/b", "a.".repeat(127));
    let cases = [
        (
            json!({ "commonLabels": { "team": "not valid!" } }),
            Some("commonLabels.team: invalid value \"not valid!\"; set it to at most 63"),
        ),
        (json!({ "commonLabels": { "team": "-a" } }), Some("commonLabels.team: invalid value")),
        (json!({ "commonLabels": { "team": long } }), Some("commonLabels.team: invalid value")),
        (
            json!({ "commonLabels": { "team": 5 } }),
            Some("commonLabels.team: 5 is a number, but must be a text"),
        ),
        (
            json!({ "commonLabels": { "a b": "c" } }),
            Some("commonLabels.a b: invalid key \"a b\"; use a name of at most 63"),
        ),
        (
            json!({ "commonLabels": { "Example.com/a": "c" } }),
            Some("commonLabels.Example.com/a: invalid key"),
        ),
        (json!({ "commonLabels": { long.as_str(): "c" } }), Some(": invalid key")),
        (
            json!({ "commonLabels": { prefix.as_str(): "c" } }),
            Some("; use a DNS name of at most 253 characters and a name"),
        ),
        (json!({ "commonLabels": { "": "c" } }), Some("invalid key \"\"")),
        (
            json!({ "nodeController": { "podLabels": { "x": "a/b" } } }),
            Some("nodeController.podLabels.x: invalid value"),
        ),
        (json!({ "monitoring": { "labels": { "x": "a b" } } }), Some("monitoring.labels.x: invalid value")),
        (
            json!({ "routeController": { "nodeSelector": { "a/b/c": "d" } } }),
            Some("routeController.nodeSelector.a/b/c: invalid key"),
        ),
        (
            json!({ "adapter": { "podAnnotations": { "a b/c/d": "e" } } }),
            Some("adapter.podAnnotations.a b/c/d: invalid key \"a b/c/d\"; use a name"),
        ),
        (
            json!({ "adapter": { "serviceAccount": { "annotations": { "/a": "b" } } } }),
            Some("adapter.serviceAccount.annotations./a: invalid key"),
        ),
        (json!({ "commonLabels": { "team": "", "a.example.com/B_c.d-1": "Z_.-9" } }), None),
        (json!({ "adapter": { "podAnnotations": { "Example.com/a": "any text: {}\n" } } }), None),
    ];
    for (change, refused) in cases {
        let mut values = all();
        merge(&mut values, &change);
        match (helm("a", &values), refused) {
            (Ok(_), None) => (),
            (Err(said), Some(why)) => assert!(said.contains(why), "{why}: {said}"),
            (got, _) => panic!("{change}: {got:?}"),
        }
    }
}

/// Each rule is of a value that exists.
#[test]
fn formats_are_of_existing_values() {
    let (schema, rules) = schema_and_rules();
    let scalars = scalars(&schema);
    for key in rules.iter().flat_map(|rule| rule["keys"].as_array().unwrap()) {
        let key = key.as_str().unwrap();
        assert!(scalars.iter().any(|(path, _)| matches(key, path)), "{key}");
    }
}

/// The schema accepts scalars of each type, so that its message hides no other fault, and a rule checks their type instead.
#[test]
fn each_scalar_has_a_rule_of_its_type() {
    let (schema, rules) = schema_and_rules();
    for (path, types) in scalars(&schema) {
        // It has a check of its own, which lists the adapters.
        if path == ["adapter", "kind"] {
            continue;
        }
        assert_eq!(types.len(), 3, "{path:?}");
        let of_values = rules.iter().filter(|it| it["part"].is_null());
        let found: Vec<_> = of_values
            .filter(|rule| {
                rule["keys"].as_array().unwrap().iter().any(|it| matches(it.as_str().unwrap(), &path))
            })
            .map(|rule| match rule["type"].as_str().unwrap_or("text") {
                "text" => "string",
                "integer" => "number",
                other => other,
            })
            .collect();
        assert_eq!(found, [types[0].as_str()], "{path:?}");
    }
}

fn schema_and_rules() -> (Value, Vec<Value>) {
    let read = |file: &str| fs::read_to_string(chart().join(file)).unwrap();
    let rules = serde_saphyr::from_str(&read("files/formats.yaml")).unwrap();
    (serde_json::from_str(&read("values.schema.json")).unwrap(), rules)
}

/// Whether the key of a rule matches the path of a scalar. In a path, `*` is every item of a list or every key that the user chooses.
fn matches(key: &str, path: &[String]) -> bool {
    let parts: Vec<_> = key.split('.').collect();
    parts.len() == path.len() && parts.iter().zip(path).all(|(part, name)| *part == "*" || part == name)
}

/// The paths of all scalars of the schema with their types.
fn scalars(schema: &Value) -> Vec<(Vec<String>, Vec<String>)> {
    let mut open = vec![(Vec::new(), schema)];
    let mut found = Vec::new();
    while let Some((path, it)) = open.pop() {
        let it = match it["$ref"].as_str() {
            Some(name) => schema.pointer(name.trim_start_matches('#')).unwrap(),
            None => it,
        };
        let under = |name: &str| [path.clone(), vec![name.to_owned()]].concat();
        for (name, below) in it["properties"].as_object().into_iter().flatten() {
            open.push((under(name), below));
        }
        let each = [&it["items"], &it["additionalProperties"]].into_iter().filter(|it| it.is_object());
        open.extend(each.map(|below| (under("*"), below)));
        let types: Vec<String> = match it["type"].as_str() {
            Some(one) => vec![one.to_owned()],
            None => serde_json::from_value(it["type"].clone()).unwrap_or_default(),
        };
        if !types.iter().any(|it| it == "object" || it == "array") {
            found.push((path, types));
        }
    }
    found
}
