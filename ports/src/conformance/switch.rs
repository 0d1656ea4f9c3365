//! What every implementation of the port must do.
