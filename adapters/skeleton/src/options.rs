//! The flags that are this adapter's own, and the driver that comes of them.

use std::{fs, path::PathBuf};

use anyhow::Context as _;
use clap::Args;
use cloud_adapter::WrongUsage;
use http::Uri;

use crate::{client::Client, driver::SkeletonDriver};

/// Where the cloud is.
#[derive(Clone, Debug, Args)]
pub struct SkeletonOptions {
    /// Base URL of the cloud's API, such as `https://api.example.com`
    #[arg(long, value_name = "URL")]
    endpoint: Uri,
    /// File that holds the API's bearer token
    #[arg(long, value_name = "PATH")]
    token_file: PathBuf,
    /// Region of the nodes; part of all provider IDs
    #[arg(long)]
    region: String,
}

impl SkeletonOptions {
    /// Makes the driver. Connects nowhere yet.
    ///
    /// # Errors
    /// A token file that cannot be used, named with its flag, as [`WrongUsage`].
    pub fn driver(self) -> anyhow::Result<SkeletonDriver> {
        let path = self.token_file.display();
        let fault = |what: &str| WrongUsage(format!("--token-file {path}{what}"));
        let token = fs::read_to_string(&self.token_file).with_context(|| fault(""))?;
        let client = Client::new(&self.endpoint, token.trim())
            .with_context(|| fault(": the token holds what no HTTP header may"))?;
        Ok(SkeletonDriver::new(client, self.region))
    }
}
