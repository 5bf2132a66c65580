//! What the scheduler promises, each property in virtual time. The numbers are those of the design.

mod audit;
mod fairness;
mod limits;
mod refusals;
mod world;
