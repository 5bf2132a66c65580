//! Mounted files are replaced while users are at work: certificates, tokens, credentials and limits. Invalid files are not used.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use e2e::{
    ADAPTER, Bed, Cluster, ControlPlane, GrpcPort, Load, Pods, Release, Simcloud, Values, WITHIN, eventually,
    merge, new_authority,
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, from_value, json};

const CREDENTIALS: &str = "cloud-credentials";
/// Controllers read their tokens again within a second.
const READ_AGAIN: Duration = Duration::from_secs(2);

#[tokio::test]
async fn mounted_files_are_replaced_without_failed_calls() {
    let mut bed = bed().await;
    let mut load = Load::start(&bed).await.unwrap();
    load.rounds(5).await.unwrap();
    let processes = ids(&mut bed);

    authority(&mut bed, &mut load).await;
    tokens(&mut bed, &mut load).await;
    credentials(&mut bed, &mut load).await;
    limits(&mut bed, &mut load).await;
    assert_eq!(ids(&mut bed), processes, "a process was restarted");

    // All clients reconnect with only the new files, to a replica that has not served before.
    bed.cluster.pods.get(ADAPTER).unwrap().terminate().await.unwrap();
    load.rounds(10).await.unwrap();
    load.stop().await.unwrap();
    let calls = bed.adapter_calls().await.unwrap();
    let failed = calls.keys().any(|outcome| !["OK", "BACKEND_SET_UNKNOWN"].contains(&outcome.as_str()));
    assert!(!failed, "{calls:?}");
    assert_eq!(bed.warnings().await.unwrap(), Vec::<String>::new());
    let answers = bed.cluster.cloud.counts().await.unwrap().by_status;
    assert!(!answers.keys().any(|status| ["401", "403"].contains(&status.as_str())), "{answers:?}");
}

/// First both CAs are trusted, then the new CA issues certificates, and finally the old CA is no longer trusted.
async fn authority(bed: &mut Bed, load: &mut Load) {
    let secret = get_secret(bed, "cloud-adapter-ca").await;
    let [old, old_key] = ["ca.crt", "ca.key"].map(|key| secret.get(key).unwrap().clone());
    let (new, new_key) = new_authority().unwrap();
    let alone = bed.cluster.control_plane.dir().join("new-ca.crt");
    fs::write(&alone, &new).unwrap();
    let trusts_new = |bed: &mut Bed| {
        let token = PathBuf::from(controller_flag(bed, "--adapter-token-file"));
        GrpcPort::open(bed.cluster.pods.get(ADAPTER).unwrap(), Some(alone.clone()), Some(token)).unwrap()
    };
    assert!(trusts_new(bed).look_serving().await.is_err(), "the new CA has issued nothing yet");

    let steps = [
        (format!("{old}{new}"), &old_key, true),
        ("no certificate".to_owned(), &old_key, false),
        (format!("{new}{old}"), &old_key, false),
        (format!("{new}{old}"), &new_key, true),
        (new.clone(), &new_key, true),
    ];
    for (certificates, key, good) in steps {
        let change = json!({ "stringData": { "ca.crt": certificates, "ca.key": key } });
        let before = page(bed).await;
        change_secret(bed, "cloud-adapter-ca", &change).await;
        judged(bed, "certificate", &before, good).await;
        load.rounds(3).await.unwrap();
    }
    trusts_new(bed).look_serving().await.unwrap();
}

/// Each pod uses another token from now on; an empty file is ignored.
async fn tokens(bed: &mut Bed, load: &mut Load) {
    let file = controller_flag(bed, "--adapter-token-file");
    let before = fs::read_to_string(&file).unwrap();
    refresh(bed).await;
    assert_ne!(fs::read_to_string(&file).unwrap(), before);
    load.work_for(READ_AGAIN).await.unwrap();
    fs::write(&file, "").unwrap();
    load.work_for(READ_AGAIN).await.unwrap();
    refresh(bed).await;
    load.work_for(READ_AGAIN).await.unwrap();
}

/// The cloud accepts both tokens for a while. A token for another project, or an empty one, is never used.
async fn credentials(bed: &mut Bed, load: &mut Load) {
    let (old, new) = (json!({ "token": "old" }), json!({ "token": "new" }));
    let theirs = json!({ "token": "theirs", "project": "other" });
    bed.cluster.cloud.set_tokens(&json!([new, old, theirs])).await.unwrap();
    for (token, good) in [("new", true), ("theirs", false), ("\n", false), ("new\n", true)] {
        let before = page(bed).await;
        change_secret(bed, CREDENTIALS, &json!({ "stringData": { "token": token } })).await;
        judged(bed, "credentials", &before, good).await;
        load.rounds(3).await.unwrap();
    }
    bed.cluster.cloud.set_tokens(&json!([new])).await.unwrap();
    load.rounds(3).await.unwrap();
}

async fn limits(bed: &mut Bed, load: &mut Load) {
    let maps: Api<ConfigMap> = Api::namespaced(bed.client(), "kube-system");
    let buckets =
        |rate| json!({ "limits": { "buckets": { "loadbalancer": { "rate": rate, "burst": 40 } } } });
    for (rate, good) in [(30, true), (-1, false), (25, true)] {
        let before = page(bed).await;
        let change = json!({ "data": { "config.yaml": buckets(rate).to_string() } });
        maps.patch(ADAPTER, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
        refresh(bed).await;
        judged(bed, "limits", &before, good).await;
        let wanted = if good { f64::from(rate) } else { 30.0 };
        let adapter = bed.cluster.pods.get(ADAPTER).unwrap();
        let ceilings = adapter.counted("cloud_adapter_bucket_ceiling", "bucket").await.unwrap();
        assert!((ceilings.get("loadbalancer").unwrap() - wanted).abs() < 0.1, "{ceilings:?}");
        load.rounds(3).await.unwrap();
    }
}

/// Two replicas, and a cloud that requires a token.
async fn bed() -> Bed {
    let control_plane = ControlPlane::shared(&e2e::tools().unwrap()).await.unwrap();
    let mut cloud = Simcloud::start(&control_plane).await.unwrap();
    cloud.set_tokens(&json!([{ "token": "old" }])).await.unwrap();
    let secrets: Api<Secret> = Api::namespaced(control_plane.client(), "kube-system");
    let secret = json!({ "metadata": { "name": CREDENTIALS }, "stringData": { "token": "old" } });
    secrets.create(&PostParams::default(), &from_value(secret).unwrap()).await.unwrap();

    let mut values = Values::new().unwrap().simcloud(cloud.url()).render();
    let buckets = json!({ "loadbalancer": { "rate": 20, "burst": 40 } });
    merge(
        &mut values,
        &json!({ "adapter": {
            "replicas": "active-standby", "credentialsSecret": CREDENTIALS, "limits": { "buckets": buckets },
        } }),
    );
    let release = Release::install(&control_plane, &values).await.unwrap();
    let pods = Pods::from_release(&control_plane, &release).await.unwrap();
    let mut bed = Bed { cluster: Cluster { pods, cloud, release, control_plane }, within: WITHIN };
    // The first replica becomes the leader.
    let first = bed.cluster.pods.get(ADAPTER).unwrap();
    first.start().unwrap();
    first.wait_ready(WITHIN).await.unwrap();
    eventually("the first replica leads", WITHIN, || async {
        ensure!(first.metrics().await?.contains("\ncloud_adapter_leader 1\n"), "it is a standby");
        Ok(())
    })
    .await
    .unwrap();
    bed.start_pods().await.unwrap();
    bed
}

fn ids(bed: &mut Bed) -> BTreeMap<String, Option<u32>> {
    let names = bed.cluster.pods.names();
    names.into_iter().map(|name| (name.clone(), bed.cluster.pods.get(&name).unwrap().id())).collect()
}

fn controller_flag(bed: &mut Bed, flag: &str) -> String {
    bed.cluster.pods.get("service-controller").unwrap().flag(flag).unwrap().to_owned()
}

async fn get_secret(bed: &Bed, name: &str) -> BTreeMap<String, String> {
    let secrets: Api<Secret> = Api::namespaced(bed.client(), "kube-system");
    let data = secrets.get(name).await.unwrap().data.unwrap();
    data.into_iter().map(|(key, value)| (key, String::from_utf8(value.0).unwrap())).collect()
}

/// Changes a Secret, and refreshes all its mounts.
async fn change_secret(bed: &Bed, name: &str, change: &Value) {
    let secrets: Api<Secret> = Api::namespaced(bed.client(), "kube-system");
    secrets.patch(name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    refresh(bed).await;
}

async fn refresh(bed: &Bed) {
    bed.cluster.pods.refresh_volumes(&bed.cluster.control_plane).await.unwrap();
}

/// How often the leader has loaded this kind of file, and how often it has refused it.
fn reloads(page: &str, kind: &str) -> [u64; 2] {
    ["ok", "failed"].map(|result| {
        let line = format!("cloud_adapter_config_reload_total{{kind=\"{kind}\",result=\"{result}\"}} ");
        page.lines().find_map(|it| it.strip_prefix(&line)?.parse().ok()).unwrap_or_default()
    })
}

async fn page(bed: &mut Bed) -> String {
    bed.cluster.pods.get(ADAPTER).unwrap().metrics().await.unwrap()
}

/// Waits until the leader has loaded a file, or refused it, once more than in `before`.
async fn judged(bed: &mut Bed, kind: &str, before: &str, good: bool) {
    let [ok, failed] = reloads(before, kind);
    let wanted = [ok + u64::from(good), failed + u64::from(!good)];
    let adapter = &*bed.cluster.pods.get(ADAPTER).unwrap();
    eventually(&format!("{kind} are checked, valid: {good}"), WITHIN, || async {
        let now = reloads(&adapter.metrics().await?, kind);
        ensure!(now == wanted, "[loaded, refused] is {now:?}, expected {wanted:?}");
        Ok(())
    })
    .await
    .unwrap();
}
