// Package tinkerbell pins the Go types of Tinkerbell's kinds, so that controller-gen can find them from this module:
// a test compares the CRDs that it makes from them with ours. Nothing here is built into a program.
package tinkerbell

import (
	_ "github.com/tinkerbell/tinkerbell/api/v1alpha1/bmc"
	_ "github.com/tinkerbell/tinkerbell/api/v1alpha1/tinkerbell"
)
