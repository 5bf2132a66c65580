//! Tests of the objects that the chart creates for OpenStack, on a real API server. Only the adapter runs here, and it calls no cloud.

use std::collections::BTreeSet;

use e2e::{Pods, Release, Values, WITHIN, eventually, merge};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, from_value, json};

use super::chart_install::control_plane;

/// No service listens at this address.
fn clouds_yaml(secret: &str) -> String {
    format!(
        "clouds:\n  prod:\n    auth_type: v3applicationcredential\n    region_name: r1\n    auth:\n      \
         auth_url: http://127.0.0.1:1/v3\n      application_credential_id: a\n      application_credential_secret: {secret}\n"
    )
}

fn openstack(secret: &str) -> Value {
    json!({ "adapter": { "kind": "openstack", "openstack": {
        "cloudsYaml": clouds_yaml(secret),
        "ca": "-----BEGIN CERTIFICATE-----\n",
        "cloud": "prod",
        "region": "r2",
        "interface": "internal",
        "publicNetworks": ["public", "the other one"],
        "internalNetworks": ["nodes"],
        "addressSortOrder": ["10.0.0.0/16", "fd00::/8"],
        "ipv6": false,
        "regionalProviderIds": true,
        "routerId": "router-1",
        "loadBalancers": {
            "provider": "ovn",
            "creation": "part-by-part",
            "manageSecurityGroups": true,
            "subnetId": "subnet-1",
            "ipv6SubnetId": "subnet-2",
            "memberSubnetId": "subnet-3",
            "floatingNetworkId": "network-2",
            "floatingSubnetId": "subnet-4",
        },
    } } })
}

/// The flags that only the adapter for OpenStack has: those under its own headings of `--help`.
fn own_flags(help: &str) -> BTreeSet<String> {
    let heading = |line: &&str| !line.is_empty() && !line.starts_with(' ');
    let of = |own: &'static str| {
        let section = help.lines().skip_while(move |line| *line != own).skip(1);
        section.take_while(move |line| !heading(line))
    };
    let lines = ["OpenStack:", "Load balancers:"].into_iter().flat_map(of);
    // The descriptions are indented further, and mention other flags.
    lines
        .filter_map(|line| Some(format!("--{}", line.strip_prefix("      --")?.split(' ').next()?)))
        .collect()
}

/// The adapter for OpenStack gets all its flags, and its credentials, which no other pod can read. Replaced credentials need no restart.
// Behaviour: P16
#[tokio::test]
async fn openstack_adapter_gets_its_flags_and_credentials() {
    let control_plane = control_plane().await;
    let mut values = Values::new().unwrap().render();
    merge(&mut values, &openstack("first-secret"));
    merge(&mut values, &json!({ "serviceController": { "compat": "openstack" } }));
    let release = Release::install(&control_plane, &values).await.unwrap();
    let mut pods = Pods::from_release(&control_plane, &release).await.unwrap();

    for controller in ["node-controller", "route-controller", "service-controller"] {
        let args = pods.get(controller).unwrap().args().join(" ");
        assert!(!args.contains("clouds"), "{controller}: {args}");
    }
    let service = pods.get("service-controller").unwrap();
    assert!(service.args().iter().any(|arg| arg == "--compat=openstack"), "{:?}", service.args());
    let program = e2e::binaries().unwrap().join("adapter-openstack");
    let help = tokio::process::Command::new(program).arg("--help").output().await.unwrap();
    let adapter = pods.get("cloud-adapter").unwrap();
    let given: BTreeSet<String> =
        adapter.args().iter().map(|arg| arg.split('=').next().unwrap().to_owned()).collect();
    // `--network-id` replaces `--subnet-id`, so the values set only one of them.
    let known = own_flags(&String::from_utf8(help.stdout).unwrap());
    let missing: Vec<_> = known.difference(&given).filter(|flag| *flag != "--network-id").collect();
    assert!(known.len() > 10 && missing.is_empty(), "{missing:?} of {known:?}");
    for wanted in [
        "--public-network-name=the other one",
        "--address-sort-order=10.0.0.0/16,fd00::/8",
        "--region=r2",
        "--grant=*:former=kubernetes",
    ] {
        assert!(adapter.args().iter().any(|arg| arg == wanted), "{wanted}: {:?}", adapter.args());
    }
    let file = adapter.flag("--clouds-file").unwrap().to_owned();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), clouds_yaml("first-secret"));
    assert!(std::path::Path::new(&file).with_file_name("ca.crt").exists());

    // The program accepts exactly these flags. Without watchers it does not call the cloud.
    adapter.start().unwrap();
    let log = adapter.log();
    let listens = async || {
        let text = std::fs::read_to_string(&log)?;
        anyhow::ensure!(text.contains("Adapter is listening"), "{text}");
        Ok(())
    };
    eventually("the adapter listens", WITHIN, listens).await.unwrap();
    assert!(adapter.is_running(), "{}", adapter.tail());

    let deployment = ["get", "deployment", "cloud-adapter", "--namespace", "kube-system", "--output"];
    let generation = [&deployment[..], &["jsonpath={.metadata.generation}"]].concat();
    let before = control_plane.kubectl(&generation).await.unwrap();
    merge(&mut values, &openstack("second-secret"));
    release.upgrade(&control_plane, &values).await.unwrap();
    assert_eq!(control_plane.kubectl(&generation).await.unwrap(), before, "there is no rollout");
    pods.refresh_volumes(&control_plane).await.unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), clouds_yaml("second-secret"));
    assert!(pods.get("cloud-adapter").unwrap().is_running());
}

/// The adapter mounts the user's own Secret, and the chart creates no Secret.
#[tokio::test]
async fn openstack_adapter_uses_an_existing_secret() {
    let control_plane = control_plane().await;
    let secrets: Api<Secret> = Api::namespaced(control_plane.client(), "kube-system");
    let data = json!({ "clouds.yaml": clouds_yaml("mine"), "secure.yaml": "clouds: {}\n" });
    let secret = from_value(json!({ "metadata": { "name": "my-cloud" }, "stringData": data })).unwrap();
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let mut values = Values::new().unwrap().render();
    let change = json!({ "adapter": {
        "kind": "openstack", "credentialsSecret": "my-cloud", "openstack": { "routerId": "router-1" },
    } });
    merge(&mut values, &change);
    let release = Release::install(&control_plane, &values).await.unwrap();
    let mut pods = Pods::from_release(&control_plane, &release).await.unwrap();
    let adapter = pods.get("cloud-adapter").unwrap();
    let file = std::path::PathBuf::from(adapter.flag("--clouds-file").unwrap());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), clouds_yaml("mine"));
    assert!(file.with_file_name("secure.yaml").exists(), "secure.yaml is mounted, too");
    assert!(!adapter.args().iter().any(|arg| arg.starts_with("--token-file")), "{:?}", adapter.args());
    assert!(secrets.get_opt("cloud-adapter-credentials").await.unwrap().is_none());
}
