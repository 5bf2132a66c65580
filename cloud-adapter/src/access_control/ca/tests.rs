use std::{collections::BTreeMap, time::UNIX_EPOCH};

use controller_core::{
    mirror::ObjectName,
    testing::{FakeKube, KubePort},
};
use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use tempfile::TempDir;

use super::*;
use crate::auth::{ServerIdentity, Tls, TlsFiles};

type Data = Option<BTreeMap<String, ByteString>>;

struct Cluster {
    kube: FakeKube,
    port: KubePort,
    dir: TempDir,
}

impl Cluster {
    async fn with(data: Data) -> Self {
        let ObjectName { namespace, name } = name();
        let metadata = ObjectMeta { name: Some(name), namespace, ..ObjectMeta::default() };
        let kube = FakeKube::new();
        kube.put::<Secret>(Secret { metadata, data, ..Secret::default() });
        let port = kube.listen().await.expect("a port");
        Self { kube, port, dir: tempfile::tempdir().expect("a folder") }
    }

    fn replica(&self, name: &str) -> CaSecret {
        let dir = self.dir.path().join(name);
        fs::create_dir_all(&dir).expect("a created folder");
        let api = ApiServer::new(Some(self.port.kubeconfig.path().to_path_buf()));
        let secret = "a/ca".parse().expect("a name");
        CaSecret::new(api, secret, dir.join("ca.crt"), dir.join("ca.key"))
    }

    fn data(&self) -> Data {
        self.kube.get::<Secret>(&name()).expect("the Secret").data
    }
}

fn name() -> ObjectName {
    ObjectName::namespaced("a", "ca")
}

fn files(replica: &CaSecret) -> (String, String) {
    let read = |path: &Path| fs::read_to_string(path).expect("written");
    (read(&replica.certificate), read(&replica.key))
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_795_219_200)
}

#[tokio::test]
async fn empty_secret_gets_a_ca_that_all_replicas_use() {
    let cluster = Cluster::with(None).await;
    let (one, two) = (cluster.replica("one"), cluster.replica("two"));
    let (first, second) = tokio::join!(one.prepare(now()), two.prepare(now()));
    assert!(first.is_ok() || second.is_ok(), "{first:?}, {second:?}");
    // The process retries a failed attempt. Here the attempt of the slower replica may have failed.
    for replica in [&one, &two] {
        replica.prepare(now()).await.expect("the Secret has a CA");
    }
    let ca = files(&one);
    assert_eq!(files(&two), ca);
    let names = vec!["cloud-adapter".to_owned()];
    let identity =
        ServerIdentity::Authority { certificate: one.certificate.clone(), key: one.key.clone(), names };
    Tls::start(TlsFiles { identity, client_ca: None }, now).expect("the CA issues certificates");
    let restarted = cluster.replica("restarted");
    restarted.prepare(now()).await.expect("the Secret has a CA");
    assert_eq!(files(&restarted), ca);
}

#[tokio::test]
async fn a_replaced_ca_is_written_to_the_files() {
    let cluster = Cluster::with(None).await;
    let replica = cluster.replica("one");
    assert_eq!(replica.prepare(now()).await.expect("empty"), Origin::Created);
    let old = files(&replica);
    assert_eq!(replica.prepare(now()).await.expect("filled"), Origin::Secret);
    cluster.kube.change::<Secret>(&name(), |secret| secret.data = None);
    assert_eq!(replica.prepare(now()).await.expect("empty again"), Origin::Replaced);
    assert_ne!(files(&replica), old);
}

#[tokio::test]
async fn half_a_ca_is_an_error_that_changes_nothing() {
    let half = Some(BTreeMap::from([("ca.crt".to_owned(), ByteString(b"a".to_vec()))]));
    let cluster = Cluster::with(half.clone()).await;
    let error = cluster.replica("one").prepare(now()).await.expect_err("the key is missing");
    assert!(error.to_string().contains("Secret a/ca has no ca.key"), "{error}");
    assert_eq!(cluster.data(), half);
}
