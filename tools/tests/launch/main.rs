//! `ferroce run` and what belongs to it: settings, devices, the environment, installation.

mod install;
mod run;
mod settings;
mod support;
