//! What Python and PyTorch call: the PyO3 module, C entry points and the C++ shim's side. No logic.
