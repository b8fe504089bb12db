"""Events in the formats of other tools. ``formats`` has one file per format; the rest is what they are made of."""
