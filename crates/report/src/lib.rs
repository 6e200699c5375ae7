//! The report: one HTML file that shows where the memory goes, why, and what a plan would save.
