//! Plots for papers, in SVG, to two decimals of a pixel: a paper scales them.

mod axis;
mod chart;
pub mod figures;
mod look;
mod text;
pub(crate) mod units;

pub use axis::{Axis, Scale};
pub use chart::{Chart, DEFAULT_WIDTH, Series, Style, WIDTHS};
