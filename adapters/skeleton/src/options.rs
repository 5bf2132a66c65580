//! The flags of this adapter, and the driver that is built from them.

use std::{fs, path::PathBuf};

use anyhow::Context as _;
use clap::Args;
use cloud_adapter::WrongUsage;
use http::Uri;

use crate::{client::Client, driver::SkeletonDriver};

/// The cloud and its credentials.
#[derive(Clone, Debug, Args)]
pub struct SkeletonOptions {
    /// Base URL of the cloud's API, such as `https://api.example.com`
    #[arg(long, value_name = "URL")]
    endpoint: Uri,
    /// File that contains the API's bearer token
    #[arg(long, value_name = "PATH")]
    token_file: PathBuf,
    /// Region of the nodes; part of all provider IDs
    #[arg(long)]
    region: String,
}

impl SkeletonOptions {
    /// Builds the driver without connecting to the cloud.
    ///
    /// # Errors
    /// Returns [`WrongUsage`] with the name of the flag if the token file cannot be used.
    pub fn driver(self) -> anyhow::Result<SkeletonDriver> {
        let path = self.token_file.display();
        let fault = |what: &str| WrongUsage(format!("--token-file {path}{what}"));
        let token = fs::read_to_string(&self.token_file).with_context(|| fault(""))?;
        let client = Client::new(&self.endpoint, token.trim()).with_context(|| {
            fault(": the token contains characters that are not allowed in an HTTP header")
        })?;
        Ok(SkeletonDriver::new(client, self.region))
    }
}
