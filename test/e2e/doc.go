// Package e2e runs procsup as its users do, from scripts in testdata, each
// headed by the faults and rules it guards. Every script runs at every
// containment level, and all of them again as a user who is not root.
//
// Linux only: elsewhere procsup compiles but claims less.
package e2e
