//! The scenarios on real control planes, one module per subject. They are one program, because each program links all of kube and tonic
//! again.
//!
//! The head of each module describes its subject. Scenarios that need root and kubelets are in `cluster`, those that need OpenStack in
//! `openstack`; both are separate programs.

#![expect(clippy::unwrap_used, reason = "clippy recognises tests, but not their helpers")]

mod adapter_access;
mod adapter_failover;
mod admission_policy;
mod bench;
mod chart_formats;
mod chart_gitops;
mod chart_images;
mod chart_install;
mod chart_keys;
mod chart_names;
mod chart_notes;
mod chart_openstack;
mod chart_options;
mod chart_presets;
mod chart_self_test;
mod chart_template;
mod chart_upgrade;
mod chart_values;
mod cloudctl;
mod cloudctl_check;
mod command_line;
mod controllers_apart;
mod demo;
mod docs_commands;
mod dry_run;
mod explain;
mod fault_cloud;
mod fault_outage;
mod fault_restart;
mod harness;
mod hostile_play;
mod leader_election;
mod metrics_names;
mod node_faults;
mod node_initialisation;
mod node_lifecycle;
mod observed;
mod one_cause;
mod peer;
mod process_pages;
mod release;
mod rotation;
mod route_table;
mod service_fields;
mod service_load_balancer;
mod shards;
mod status_page;
mod tenants;
mod traces;
