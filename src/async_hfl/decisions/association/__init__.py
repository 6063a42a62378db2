"""Association policies, one a file: which device belongs to which gateway? (Eq. 11)"""
