//! A simcloud, as its operator and as its customer: both by HTTP, with the lane's token.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use reqwest::Method;
use serde_json::{Value, json};

use super::{files, variable};

/// Between two looks at a change that the cloud is at.
const TICK: Duration = Duration::from_millis(10);

/// The adapter's vendor credentials.
pub(crate) const TOKEN: &str = "vendor-token";

pub(super) struct Cloud {
    url: String,
    token: PathBuf,
    client: reqwest::Client,
}

impl Cloud {
    pub(super) fn new() -> anyhow::Result<Self> {
        #[expect(
            clippy::disallowed_methods,
            reason = "commands play the vendor's operator, who has no budget"
        )]
        let client = reqwest::Client::builder().no_proxy().build()?;
        let token = PathBuf::from(variable("FOLDER")?).join(TOKEN);
        Ok(Self { url: variable("CLOUD")?, token, client })
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let token = fs::read_to_string(&self.token)?;
        let request = self.client.request(method, format!("{}/{path}", self.url)).bearer_auth(token.trim());
        let request = match body {
            Some(body) => request.json(body),
            None => request,
        };
        let answer = request.send().await.with_context(|| format!("{path}: is the cloud there?"))?;
        let status = answer.status();
        let body: Value = answer.json().await.with_context(|| path.to_owned())?;
        anyhow::ensure!(status.is_success(), "{path}: {status} {body}");
        Ok(body)
    }

    /// One that is gone already is no error.
    pub(super) async fn delete(&self, collection: &str, id: &str) -> anyhow::Result<String> {
        let gone = |error: &anyhow::Error| error.to_string().contains(": 404");
        match self.call(Method::DELETE, &format!("{collection}/{id}"), None).await {
            Err(error) if !gone(&error) => Err(error),
            Ok(_) | Err(_) => Ok(String::new()),
        }
    }

    pub(super) async fn settings(&self, change: &Value) -> anyhow::Result<String> {
        self.call(Method::PATCH, "admin/settings", Some(change)).await?;
        Ok(String::new())
    }

    pub(super) async fn create_instances(&self, name: &str, count: u32) -> anyhow::Result<String> {
        let order = json!({ "name": format!("{name}-{{n}}"), "count": count, "first": 0 });
        let made = self.call(Method::POST, "admin/instances", Some(&order)).await?;
        let instances = made.get("instances").and_then(Value::as_array).into_iter().flatten();
        let ids =
            instances.filter_map(|one| Some(format!("sim://{}/{}", text(one, "region")?, text(one, "id")?)));
        Ok(ids.collect::<Vec<_>>().join("\n"))
    }

    pub(super) async fn delete_instances(&self, provider_ids: &str) -> anyhow::Result<String> {
        for id in provider_ids.split_whitespace() {
            self.delete("admin/instances", vendor_id(id)).await?;
        }
        Ok(String::new())
    }

    pub(super) async fn change_instance(&self, change: Value) -> anyhow::Result<String> {
        let id = variable("PROVIDER_ID")?;
        self.call(Method::PATCH, &format!("admin/instances/{}", vendor_id(&id)), Some(&change)).await?;
        Ok(String::new())
    }

    pub(super) async fn create_load_balancer(&self, name: &str) -> anyhow::Result<String> {
        let order = json!({ "name": name, "scheme": "internet" });
        let made = self.call(Method::POST, "v1/load-balancers", Some(&order)).await?;
        let id = text(&made, "id").context("it has no id")?;
        while is_pending(&self.load_balancer(id).await?) {
            tokio::time::sleep(TICK).await;
        }
        Ok(id.to_owned())
    }

    /// Everything but when, and how it does.
    pub(super) async fn describe_load_balancer(&self, id: &str) -> anyhow::Result<String> {
        let mut found = self.load_balancer(id).await?;
        if let Some(fields) = found.as_object_mut() {
            fields.retain(|field, _| !["status", "updated_at"].contains(&field.as_str()));
        }
        Ok(found.to_string())
    }

    pub(super) async fn break_load_balancer(&self, id: &str) -> anyhow::Result<String> {
        let change = json!({ "status": "ERROR" });
        self.call(Method::PATCH, &format!("admin/load-balancers/{id}"), Some(&change)).await?;
        Ok(String::new())
    }

    /// Somebody removes a listener.
    pub(super) async fn drift_load_balancer(&self, id: &str) -> anyhow::Result<String> {
        let found = self.load_balancer(id).await?;
        let first = found.get("listeners").and_then(|all| all.get(0)).and_then(|one| text(one, "id"));
        let listener = first.context("it has no listener")?;
        self.delete("v1/listeners", listener).await
    }

    /// All load balancers carry hashes of another version, as if another release had set them.
    pub(super) async fn age_hashes(&self) -> anyhow::Result<()> {
        for balancer in self.load_balancers().await? {
            let mut tags = balancer.get("tags").and_then(Value::as_object).cloned().unwrap_or_default();
            let Some((_key, hash)) = tags.iter_mut().find(|(key, _hash)| key.ends_with("/hash")) else {
                continue;
            };
            let id = text(&balancer, "id").context("it has no id")?;
            *hash = format!("0-{id}").into();
            self.call(Method::PATCH, &format!("v1/load-balancers/{id}"), Some(&json!({ "tags": tags })))
                .await?;
        }
        // The cloud is done when nothing is pending any more.
        while self.load_balancers().await?.iter().any(is_pending) {
            tokio::time::sleep(TICK).await;
        }
        Ok(())
    }

    async fn load_balancers(&self) -> anyhow::Result<Vec<Value>> {
        let state = self.state().await?;
        Ok(state.get("load_balancers").and_then(Value::as_array).cloned().unwrap_or_default())
    }

    async fn load_balancer(&self, id: &str) -> anyhow::Result<Value> {
        let mut all = self.load_balancers().await?.into_iter();
        all.find(|one| text(one, "id") == Some(id)).context("there is no such load balancer")
    }

    pub(super) async fn create_route(&self, destination: &str, provider_id: &str) -> anyhow::Result<String> {
        let route = json!({ "destination": destination, "next_hop_instance": vendor_id(provider_id) });
        let answer = self.call(Method::POST, "v1/routes:batch", Some(&json!({ "add": [route] }))).await?;
        let id = answer.pointer("/added/0/ok/id").and_then(Value::as_str);
        Ok(id.with_context(|| format!("refused: {answer}"))?.to_owned())
    }

    /// One that is gone already is no error.
    pub(super) async fn delete_route(&self, id: &str) -> anyhow::Result<String> {
        self.call(Method::POST, "v1/routes:batch", Some(&json!({ "remove": [id] }))).await?;
        Ok(String::new())
    }

    /// By the tags that the adapter sets; its README lists them.
    pub(super) async fn owned(&self, cluster: &str) -> anyhow::Result<String> {
        let state = self.state().await?;
        let collections = ["load_balancers", "routes"].iter().filter_map(|name| state.get(*name)?.as_array());
        let owned = collections.flatten().filter(|one| {
            let mut tags = one.get("tags").and_then(Value::as_object).into_iter().flatten();
            tags.any(|(key, value)| key.ends_with("/cluster-id") && value == cluster)
        });
        Ok(owned.filter_map(|one| text(one, "id")).collect::<Vec<_>>().join("\n"))
    }

    pub(super) async fn list_load_balancers(&self) -> anyhow::Result<String> {
        let all = self.load_balancers().await?;
        Ok(all.iter().filter_map(|one| text(one, "id")).collect::<Vec<_>>().join("\n"))
    }

    async fn state(&self) -> anyhow::Result<Value> {
        self.call(Method::GET, "admin/state", None).await
    }

    /// Another token is good, too, and the adapter's file holds it.
    pub(super) async fn rotate_credentials(&self, folder: &Path) -> anyhow::Result<String> {
        let old = fs::read_to_string(&self.token)?;
        let old = old.trim();
        let new = format!("{old}-next");
        let both = json!({ "tokens": [{ "token": old }, { "token": new }] });
        self.call(Method::PUT, "admin/tokens", Some(&both)).await?;
        files::replace(&folder.join(TOKEN), new.as_bytes())?;
        Ok(String::new())
    }

    /// Only what the adapter's file holds is good.
    pub(super) async fn revoke_credentials(&self) -> anyhow::Result<String> {
        let token = fs::read_to_string(&self.token)?;
        let one = json!({ "tokens": [{ "token": token.trim() }] });
        self.call(Method::PUT, "admin/tokens", Some(&one)).await?;
        Ok(String::new())
    }
}

fn text<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value.get(field)?.as_str()
}

/// `sim://region/i-1` is `i-1` to the cloud.
fn vendor_id(provider_id: &str) -> &str {
    provider_id.rsplit('/').next().unwrap_or(provider_id)
}

/// Whether the cloud is not done with a load balancer.
fn is_pending(balancer: &Value) -> bool {
    text(balancer, "status").is_some_and(|status| status.starts_with("PENDING"))
}
