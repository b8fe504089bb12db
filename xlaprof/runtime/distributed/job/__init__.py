"""The processes of one job: who is there, how they start, meet, fail and end."""
