//! Plots for papers, in SVG, to two decimals of a pixel: a paper scales them.

mod axis;
mod chart;
pub mod figures;

pub use axis::{Axis, Scale};
pub use chart::{Chart, Series, Style};
