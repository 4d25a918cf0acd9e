//! The target `cm` under libFuzzer; built without, it runs the files it is given.

#![cfg_attr(fuzzing, no_main)]

ferroce_fuzz::target!(cm);
