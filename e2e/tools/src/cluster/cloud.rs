//! The simulated cloud in the fabric. Its instances are the nodes. Its clients run in the fabric or in pods.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::cluster::layout::{CLOUD_PORT, FABRIC_ADDRESS, Node};

/// The URL of the simulated cloud.
pub fn url() -> String {
    format!("http://{FABRIC_ADDRESS}:{CLOUD_PORT}")
}

/// Returns the complete state of the cloud. Call this inside the fabric.
pub async fn state() -> anyhow::Result<Value> {
    call(&request("GET", "/admin/state", "")).await
}

/// Creates an instance for each node that has none. Call this inside the fabric.
pub async fn register(nodes: u8) -> anyhow::Result<()> {
    let there = names(&state().await?);
    for node in Node::up_to(nodes).filter(|node| !there.contains(&node.to_string())) {
        let order = instance(node).to_string();
        call(&request("POST", "/admin/instances", &order))
            .await
            .with_context(|| format!("cannot create an instance for {node}"))?;
    }
    Ok(())
}

fn names(state: &Value) -> BTreeSet<String> {
    let instances = state["instances"].as_array().into_iter().flatten();
    instances.filter_map(|instance| instance["name"].as_str().map(str::to_owned)).collect()
}

fn instance(node: Node) -> Value {
    json!({
        "name": node.to_string(),
        "addresses": [
            { "kind": "internal", "address": node.address() },
            { "kind": "hostname", "address": node.to_string() },
        ],
    })
}

fn request(method: &str, path: &str, body: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: {FABRIC_ADDRESS}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Sends a request without an HTTP library, because `cargo xtask` sends no other HTTP requests and should build fast.
async fn call(request: &str) -> anyhow::Result<Value> {
    let mut stream =
        TcpStream::connect((FABRIC_ADDRESS, CLOUD_PORT)).await.context("simcloud did not answer")?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    body(&String::from_utf8_lossy(&answer))
}

/// Parses an answer. Chunked transfer encoding is not supported; simcloud does not use it.
fn body(answer: &str) -> anyhow::Result<Value> {
    let (head, body) = answer.split_once("\r\n\r\n").context("invalid HTTP answer")?;
    let good = head.split(' ').nth(1).is_some_and(|status| status.starts_with('2'));
    ensure!(good, "simcloud rejected the request: {body}");
    serde_json::from_str(body).with_context(|| format!("simcloud did not answer with JSON: {body}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_has_the_address_of_its_node() {
        let instance = instance(Node(2));
        assert_eq!(instance["name"], "node-2");
        assert_eq!(instance.pointer("/addresses/0/address").unwrap(), "10.90.0.12");
    }

    #[test]
    fn error_has_the_text_of_the_cloud() {
        assert_eq!(body("HTTP/1.1 200 OK\r\na: b\r\n\r\n{\"x\":1}").unwrap()["x"], 1);
        let error = body("HTTP/1.1 400 Bad Request\r\n\r\nno such kind").unwrap_err();
        assert_eq!(error.to_string(), "simcloud rejected the request: no such kind");
    }

    #[test]
    fn nodes_with_instances_are_found_by_name() {
        let state = json!({ "instances": [{ "name": "node-1" }, { "name": "else" }] });
        assert!(names(&state).contains("node-1") && !names(&state).contains("node-2"));
    }
}
