//! A client of simcloud, for its admin API and its customer API, with the lane's token.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use reqwest::Method;
use serde_json::{Value, json};

use super::{files, variable};

/// Pause between two reads while the cloud works on a change.
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
            reason = "commands act as the vendor's operator, without a budget"
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
        let answer = request.send().await.with_context(|| format!("{path}: simcloud did not answer"))?;
        let status = answer.status();
        let body: Value = answer.json().await.with_context(|| path.to_owned())?;
        anyhow::ensure!(status.is_success(), "{path}: {status} {body}");
        Ok(body)
    }

    async fn change(&self, method: Method, path: &str, body: &Value) -> anyhow::Result<String> {
        self.call(method, path, Some(body)).await.map(|_| String::new())
    }

    /// Deletes an object. An object that is already gone is not an error.
    pub(super) async fn delete(&self, collection: &str, id: &str) -> anyhow::Result<String> {
        let gone = |error: &anyhow::Error| error.to_string().contains(": 404");
        match self.call(Method::DELETE, &format!("{collection}/{id}"), None).await {
            Err(error) if !gone(&error) => Err(error),
            Ok(_) | Err(_) => Ok(String::new()),
        }
    }

    pub(super) async fn settings(&self, change: &Value) -> anyhow::Result<String> {
        self.change(Method::PATCH, "admin/settings", change).await
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
        self.change(Method::PATCH, &format!("admin/instances/{}", vendor_id(&id)), &change).await
    }

    pub(super) async fn create_load_balancer(&self, name: &str) -> anyhow::Result<String> {
        let order = json!({ "name": name, "scheme": "internet" });
        let made = self.call(Method::POST, "v1/load-balancers", Some(&order)).await?;
        let id = text(&made, "id").context("the load balancer has no id")?;
        while is_pending(&self.load_balancer(id).await?) {
            tokio::time::sleep(TICK).await;
        }
        Ok(id.to_owned())
    }

    /// Returns all properties of a load balancer except its times and its status.
    pub(super) async fn describe_load_balancer(&self, id: &str) -> anyhow::Result<String> {
        let mut found = self.load_balancer(id).await?;
        if let Some(fields) = found.as_object_mut() {
            fields.retain(|field, _| !["status", "updated_at"].contains(&field.as_str()));
        }
        Ok(found.to_string())
    }

    pub(super) async fn break_load_balancer(&self, id: &str) -> anyhow::Result<String> {
        let change = json!({ "status": "ERROR" });
        self.change(Method::PATCH, &format!("admin/load-balancers/{id}"), &change).await
    }

    /// Deletes a listener of the load balancer directly in the cloud.
    pub(super) async fn drift_load_balancer(&self, id: &str) -> anyhow::Result<String> {
        let found = self.load_balancer(id).await?;
        let first = found.get("listeners").and_then(|all| all.get(0)).and_then(|one| text(one, "id"));
        let listener = first.context("the load balancer has no listener")?;
        self.delete("v1/listeners", listener).await
    }

    /// Replaces the hashes of all load balancers, as if an adapter with another hash version had set them.
    pub(super) async fn age_hashes(&self) -> anyhow::Result<()> {
        for balancer in self.load_balancers().await? {
            let mut tags = balancer.get("tags").and_then(Value::as_object).cloned().unwrap_or_default();
            let Some((_key, hash)) = tags.iter_mut().find(|(key, _hash)| key.ends_with("/hash")) else {
                continue;
            };
            let id = text(&balancer, "id").context("the load balancer has no id")?;
            *hash = format!("0-{id}").into();
            self.call(Method::PATCH, &format!("v1/load-balancers/{id}"), Some(&json!({ "tags": tags })))
                .await?;
        }
        // Wait until the cloud has completed the changes.
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
        all.find(|one| text(one, "id") == Some(id)).context("load balancer not found")
    }

    pub(super) async fn create_route(&self, destination: &str, provider_id: &str) -> anyhow::Result<String> {
        let route = json!({ "destination": destination, "next_hop_instance": vendor_id(provider_id) });
        let answer = self.call(Method::POST, "v1/routes:batch", Some(&json!({ "add": [route] }))).await?;
        let id = answer.pointer("/added/0/ok/id").and_then(Value::as_str);
        Ok(id.with_context(|| format!("refused: {answer}"))?.to_owned())
    }

    /// Deletes a route. A route that is already gone is not an error.
    pub(super) async fn delete_route(&self, id: &str) -> anyhow::Result<String> {
        self.change(Method::POST, "v1/routes:batch", &json!({ "remove": [id] })).await
    }

    /// Selects objects by the tags that the adapter sets; the adapter's README lists the tags.
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

    /// Makes the cloud accept a second token, and writes it to the adapter's file.
    pub(super) async fn rotate_credentials(&self, folder: &Path) -> anyhow::Result<String> {
        let old = fs::read_to_string(&self.token)?;
        let old = old.trim();
        let new = format!("{old}-next");
        let both = json!({ "tokens": [{ "token": old }, { "token": new }] });
        self.call(Method::PUT, "admin/tokens", Some(&both)).await?;
        files::replace(&folder.join(TOKEN), new.as_bytes())?;
        Ok(String::new())
    }

    /// Makes the cloud accept only the token in the adapter's file.
    pub(super) async fn revoke_credentials(&self) -> anyhow::Result<String> {
        let token = fs::read_to_string(&self.token)?;
        let one = json!({ "tokens": [{ "token": token.trim() }] });
        self.change(Method::PUT, "admin/tokens", &one).await
    }
}

fn text<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value.get(field)?.as_str()
}

/// The instance's ID in the cloud: `i-1` for `sim://region/i-1`.
fn vendor_id(provider_id: &str) -> &str {
    provider_id.rsplit('/').next().unwrap_or(provider_id)
}

fn is_pending(balancer: &Value) -> bool {
    text(balancer, "status").is_some_and(|status| status.starts_with("PENDING"))
}
