//! Tests of the names of all images that the chart can use. No API server runs here.

use std::collections::BTreeSet;

use e2e::merge;
use serde_json::{Value, json};

use super::chart_names::{all, helm, rendered};

/// The images of all pods that the chart can create with this change of the values.
pub(super) fn images(change: &Value) -> BTreeSet<String> {
    let mut images = BTreeSet::new();
    for kind in ["sim", "openstack"] {
        let mut values = all();
        let more = json!({ "adapter": { "kind": kind, "openstack": { "routerId": "a" } } });
        merge(&mut values, &more);
        merge(&mut values, change);
        images.extend(rendered("a", &values).iter().flat_map(images_of));
    }
    images
}

fn images_of(object: &Value) -> Vec<String> {
    let pod = if object["kind"] == "Pod" { "/spec" } else { "/spec/template/spec" };
    let list = |name| object.pointer(&format!("{pod}/{name}")).and_then(Value::as_array);
    let lists = ["initContainers", "containers"].into_iter().filter_map(list);
    lists.flatten().map(|it| it["image"].as_str().unwrap().to_owned()).collect()
}

/// An image whose signature was verified can be pinned. Its name keeps the tag, which shows the version.
#[test]
fn digests_pin_images() {
    let digest = |n: u8| format!("sha256:{}", format!("{n:02x}").repeat(32));
    let digests = json!({ "node-controller": digest(1), "cloudctl": digest(2) });
    let image = json!({ "registry": "registry.example", "tag": "1.2", "digests": digests });
    let expected = [
        "registry.example/adapter-openstack:1.2".to_owned(),
        "registry.example/adapter-sim:1.2".to_owned(),
        format!("registry.example/cloudctl:1.2@{}", digest(2)),
        format!("registry.example/node-controller:1.2@{}", digest(1)),
        "registry.example/route-controller:1.2".to_owned(),
        "registry.example/service-controller:1.2".to_owned(),
    ];
    assert_eq!(images(&json!({ "image": image })), expected.into());

    let refused = |digests: Value| {
        let mut values = all();
        merge(&mut values, &json!({ "image": { "digests": digests } }));
        helm("a", &values).unwrap_err()
    };
    let said = refused(json!({ "node-control": digest(1) }));
    assert!(
        said.contains(
            "- image.digests.node-control: no image of the chart has this name; use one of: node-controller, "
        ),
        "{said}"
    );
    let said = refused(json!({ "cloudctl": "sha256:1" }));
    assert!(
        said.contains("- image.digests.cloudctl: invalid value \"sha256:1\"; set it to a digest"),
        "{said}"
    );
}
