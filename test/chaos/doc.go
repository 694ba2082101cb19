// Package chaos kills procsup itself at random moments and looks at what is
// left of the command's tree.
package chaos
