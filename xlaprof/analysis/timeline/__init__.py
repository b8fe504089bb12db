"""Time: what the host did, when a device was busy, and what each idle gap is blamed on."""
