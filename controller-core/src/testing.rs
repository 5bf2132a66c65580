//! For tests of the controllers: builders and stateful fakes.
